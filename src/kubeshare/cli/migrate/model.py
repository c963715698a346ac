"""The plan of a move: nodes, legacy pods, their holders."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kubeshare.api.configuration import Configuration
from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import VGPU, GPUNode, Holder
from kubeshare.dialects.families import Family
from kubeshare.kube.resources import Raw


class Cluster(Struct, frozen=True, kw_only=True):
    """The objects that a plan is made from.

    Attributes:
        nodes: all nodes.
        gpunodes: by node.
        vgpus: all of them.
        pods: those that use GPUs without KubeShare, or with a share of it; not ended.
        configuration: KubeShare's.
    """

    nodes: Sequence[Node]
    gpunodes: Mapping[str, GPUNode]
    vgpus: Sequence[VGPU]
    pods: Sequence[Raw]
    configuration: Configuration


class Record(Struct, frozen=True):
    """A holder that stands for what a legacy pod has of one GPU.

    Attributes:
        gpu: the number of the GPU's device file.
        uuid: its UUID.
        holder: the entry.
        stored: whether the vGPU has it.
    """

    gpu: int
    uuid: str
    holder: Holder
    stored: bool = False

    @property
    def identity(self) -> tuple[str, str, str]:
        """Identifies the holder: the GPU, the demand and its share."""
        return self.uuid, self.holder.demand, self.holder.share


class LegacyPod(Struct, frozen=True):
    """A legacy pod.

    Attributes:
        uid: its uid.
        namespace: its namespace.
        name: its name.
        records: its holders; empty if they are not known.
        recorded: whether all of its holders are stored.
        problem: why it cannot be recorded; "" if it can.
    """

    uid: str
    namespace: str
    name: str
    records: tuple[Record, ...] = ()
    recorded: bool = False
    problem: str = ""

    @property
    def title(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"


class NodePlan(Struct, frozen=True, kw_only=True):
    """What moving one node takes.

    Attributes:
        name: of the node.
        cordoned: whether it is cordoned.
        requested: whether KubeShare is asked to own its GPUs.
        accepts: whether KubeShare owns them and shares them out.
        offered: what another device plugin offers there.
        published_labels: the labels it has by which the system's plugin selects its nodes.
        uuids: the UUIDs of its GPUs by the numbers of their device files.
        pods: its legacy pods, sorted.
        problems: why the node cannot be moved.
    """

    name: str
    cordoned: bool
    requested: bool
    accepts: bool
    offered: tuple[str, ...]
    published_labels: tuple[str, ...]
    uuids: Mapping[int, str]
    pods: tuple[LegacyPod, ...]
    problems: tuple[str, ...]

    @property
    def state(self) -> str:
        """What comes next: one word, which stays the same for programs."""
        if self.problems:
            return "blocked"
        if not (self.requested and (self.cordoned or self.accepts)):
            return "unprepared"
        if not all(pod.recorded for pod in self.pods):
            return "recording"
        if self.offered:
            return "recorded"
        return "owned" if self.accepts else "settling"

    @property
    def has_problems(self) -> bool:
        """Whether a person has to solve something."""
        return bool(self.problems) or any(pod.problem for pod in self.pods)


class Plan(Struct, frozen=True, kw_only=True):
    """What moving the nodes of a family takes.

    Attributes:
        family: the family.
        nodes: its nodes, sorted by name.
        waiting: unbound pods from before KubeShare, which only the former scheduler would place.
    """

    family: Family
    nodes: tuple[NodePlan, ...]
    waiting: tuple[str, ...]

    @property
    def has_problems(self) -> bool:
        """Whether a person has to solve something."""
        return bool(self.waiting) or any(node.has_problems for node in self.nodes)
