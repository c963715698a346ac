"""Narrow structs of ``kubeshare.nthu/v1``: SharePod, VGPU, GPUNode.

Shares are integers in millionths of a GPU (micros), memory is in bytes. Names
of attributes are the JSON names in snake case (``requestMicros`` is
``request_micros``). The schemas under ``deploy/crds`` are the source of truth;
a test walks both and fails when they drift apart.
"""

from msgspec import Struct, field

from kubeshare.api.types.constants import GROUP
from kubeshare.kube.client.decoding import SPEC_AND_STATUS
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.kube.resources import Resource

SHAREPODS = Resource(GROUP, "v1", "sharepods", "SharePod", namespaced=True, shape=SPEC_AND_STATUS)
VGPUS = Resource(GROUP, "v1", "vgpus", "VGPU", namespaced=False)
GPUNODES = Resource(GROUP, "v1", "gpunodes", "GPUNode", namespaced=False)


class Holder(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One demand's part of a GPU: an entry of ``VGPU.status.holders``.

    ``demand`` is the uid of the SharePod (or pod) that asked. ``container`` is
    ``""`` where all containers of the pod share this part together.
    ``attempt`` tells a decision from an earlier one for the same demand.
    ``pod_uid`` is added once the pod exists, and is what the node believes. ``parts`` is of
    how many GPUs the demand has a part: its pod starts when each of them names it.
    """

    demand: str
    attempt: int = 0
    namespace: str = ""
    name: str = ""
    pod_uid: str = ""
    container: str = ""
    request_micros: int = 0
    limit_micros: int = 0
    memory_bytes: int = 0
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    parts: int = 1


class VGPUSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Which physical GPU a vGPU stands for; ``uuid`` is ``""`` until the node says.

    ``placeholder_uid`` is the uid of the pod that the node has given this GPU to, for the
    vGPU: while that pod is there, nobody else gets it. ``""`` where nobody has noted it.
    """

    node_name: str
    pool: str = "onDemand"
    uuid: str = ""
    placeholder_uid: str = ""
    model: str = ""
    memory_bytes: int = 0


class Summary(Struct, frozen=True, kw_only=True, gc=False):
    """The holders at a glance, for ``kubectl get``: how many, and the sums, as text for people."""

    holders: int = 0
    requested: str = "0"
    memory: str = "0"


class VGPUStatus(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Phase (``Creating``, ``Active``, ``Idle``, ``Deleting``; absent is Creating) and holders."""

    phase: str = "Creating"
    summary: Summary = field(default_factory=Summary)
    holders: tuple[Holder, ...] = ()
    conditions: tuple[Condition, ...] = ()


class VGPU(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One shareable GPU. Its name is the GPUID."""

    metadata: ObjectMeta
    spec: VGPUSpec
    status: VGPUStatus = field(default_factory=VGPUStatus)


class ExcludedNode(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A node that was chosen for a SharePod and could not take its pod, or a vGPU of it.

    ``id`` is the GPUID where it is that vGPU alone, and ``""`` for all of the node.
    ``until`` is RFC 3339 text in UTC with whole seconds: before that it is not chosen again.
    ``times`` counts how often that has happened, ``message`` says why it did last.
    """

    node: str
    id: str = ""
    until: str
    times: int = 1
    message: str = ""


class GPUSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """``SharePod.spec.gpu`` where controllers look at it; the dialect reads the rest.

    ``attempt`` is 0 until Sched has decided, and counts its decisions. ``set_aside`` is
    DevMgr's, written with the undoing of a decision. ``id_given`` and ``node_given`` are Sched's:
    the author has chosen the GPUs, or the node, so that they outlive a decision.
    """

    id: str = ""
    ids: tuple[str, ...] = ()
    attempt: int = 0
    id_given: bool = False
    node_given: bool = False
    set_aside: tuple[ExcludedNode, ...] = ()


class SharePodSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The decision's place within the PodSpec that a SharePod carries."""

    gpu: GPUSpec = field(default_factory=GPUSpec)
    node_name: str = ""


class Share(Struct, frozen=True, kw_only=True, gc=False):
    """What a SharePod asks of each of its GPUs, as text for people, however it was written."""

    request: str = ""
    limit: str = ""
    memory: str = ""


class AllocatedGPU(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A GPU that a SharePod has a part of."""

    id: str
    uuid: str = ""
    model: str = ""


class SharePodStatus(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What has become of a SharePod: where it is, on which GPUs, and its pod's phase.

    Times are RFC 3339 text; ``""`` before they are known.
    """

    conditions: tuple[Condition, ...] = ()
    share: Share = field(default_factory=Share)
    node_name: str = ""
    gpus: tuple[AllocatedGPU, ...] = ()
    phase: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: str = ""
    finish_time: str = ""
    observed_generation: int = 0


class SharePod(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A pod that asks for a part of a GPU, as controllers look at it."""

    metadata: ObjectMeta
    spec: SharePodSpec = field(default_factory=SharePodSpec)
    status: SharePodStatus = field(default_factory=SharePodStatus)


class GPUDevice(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A physical GPU as NVML tells of it; ``healthy`` false comes with ``message``."""

    uuid: str
    index: int
    minor: int = 0
    model: str = ""
    memory_bytes: int = 0
    numa_node: int = -1
    cpu_list: str = ""
    healthy: bool = True
    message: str = ""


class GPULink(Struct, frozen=True, kw_only=True, gc=False):
    """How two GPUs of a node (by index) reach each other, for example ``NV2`` or ``SYS``."""

    a: int
    b: int
    link: str


class GPUNodeSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What the node agent found on its node; written whole by the agent alone.

    ``count`` is the number of devices, for ``kubectl get``; ``dra_count`` the number of those
    that a DRA driver gives to pods, of which the Node object says nothing.
    """

    driver_version: str = ""
    agent_version: str = ""
    count: int = 0
    dra_count: int = 0
    devices: tuple[GPUDevice, ...] = ()
    links: tuple[GPULink, ...] = ()


class GPUNode(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The GPUs of one node. Its name is the node's."""

    metadata: ObjectMeta
    spec: GPUNodeSpec = field(default_factory=GPUNodeSpec)
