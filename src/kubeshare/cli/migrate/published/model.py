"""What versions 1 and 2 have left in a cluster. Pure."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from kubeshare.cli.migrate.published.programs import STATUS_KEYS, Program
from kubeshare.kube.resources import Raw

KindState = Literal["absent", "old", "replaced"]


class Pod(Struct, frozen=True, order=True):
    """A pod of an earlier version.

    Attributes:
        title: its namespace and name.
        node: where it runs; ``""`` while it is not bound.
        gpuid: of its GPU; ``""`` if it names none.
    """

    title: str
    node: str
    gpuid: str


class SharePodFound(Struct, frozen=True, order=True):
    """A SharePod that exists.

    Attributes:
        namespace: its namespace.
        name: its name.
        old_keys: what only earlier versions write into its status.
        pinned: the node and GPUID that it names; ``""`` if it has not both.
        problem: why this version refuses it; ``""`` if it does not.
    """

    namespace: str
    name: str
    old_keys: tuple[str, ...]
    pinned: str
    problem: str

    @property
    def title(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"


class Former(Struct, frozen=True, kw_only=True):
    """All that a plan is made from.

    Attributes:
        kind: the CRD ``sharepods.kubeshare.nthu``: of an earlier version, or of this one.
        stored_versions: those of the CRD.
        programs: those that are there, in the order in which they are stopped.
        running: those of them that run.
        bindings: their ClusterRoleBindings.
        pods: the pods with shares that have not ended, sorted.
        waiting: the pods that only version 2's scheduler would place, sorted.
        placeholders: version 1's, sorted; each keeps a whole GPU.
        sharepods: all SharePods, sorted.
        other_sharepods: the names of those of ``sharedgpu.goc``, sorted.
        installed: whether this version's programs are there.
        node_annotations: the nodes with version 1's `kubeshare/gpu_info`, sorted.
    """

    kind: KindState
    stored_versions: tuple[str, ...]
    programs: Sequence[Program]
    running: Sequence[Program]
    bindings: Sequence[str]
    pods: Sequence[Pod]
    waiting: Sequence[str]
    placeholders: Sequence[Pod]
    sharepods: Sequence[SharePodFound]
    other_sharepods: Sequence[str]
    installed: bool
    node_annotations: Sequence[str]

    @property
    def is_there(self) -> bool:
        """Whether an earlier version has left anything that needs a step."""
        return bool(
            self.kind == "old"
            or self.programs
            or self.bindings
            or self.pods
            or self.waiting
            or self.placeholders
            or self.other_sharepods
        )

    @property
    def unused_placeholders(self) -> list[Pod]:
        """Those of whose GPU no running pod is known, nor may be."""
        used = {(pod.node, pod.gpuid) for pod in self.pods}
        unknown = {pod.node for pod in self.pods if not pod.gpuid}
        return [
            each
            for each in self.placeholders
            if (each.node, each.gpuid) not in used and each.node not in unknown
        ]

    @property
    def placing(self) -> list[Program]:
        """The running programs that give out GPUs, and that no running pod needs."""
        return [each for each in self.running if not each.serves_pods]

    @property
    def to_stop(self) -> list[Program]:
        """The running programs that no running pod needs."""
        return [each for each in self.running if not (self.pods and each.serves_pods)]

    @property
    def foreign_versions(self) -> list[str]:
        """Versions in which SharePods may be stored and that this CRD has not."""
        return [each for each in self.stored_versions if each != "v1"]


def old_keys(status: Raw) -> tuple[str, ...]:
    """The keys of a SharePod's status that only earlier versions write."""
    return tuple(key for key in STATUS_KEYS if key in status)
