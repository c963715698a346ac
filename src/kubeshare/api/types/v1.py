"""Narrow structs of ``kubeshare.nthu/v1``: SharePod, VGPU, GPUNode.

Shares are integers in millionths of a GPU (micros), memory is in bytes. Attributes are the JSON
names in snake case (``requestMicros`` is ``request_micros``). The schemas under ``manifests/crds``
are the source of truth; a test compares both.
"""

from typing import Final

from msgspec import Struct, field

from kubeshare.api.types.constants import GROUP, MODE_SHARED, POOL_STATIC
from kubeshare.kube.client.decoding import SPEC_AND_STATUS
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.kube.resources import Resource

SHAREPODS = Resource(GROUP, "v1", "sharepods", "SharePod", namespaced=True, shape=SPEC_AND_STATUS)
VGPUS = Resource(GROUP, "v1", "vgpus", "VGPU", namespaced=False)
GPUNODES = Resource(GROUP, "v1", "gpunodes", "GPUNode", namespaced=False)

MAX_UNRECORDED_PODS: Final = 16
"""Pods of a GPU that run without a holder and are named in the GPUNode."""


class Holder(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The share of a GPU that a demand has: an entry of ``VGPU.status.holders``.

    ``demand`` is the uid of the SharePod or plain pod. ``attempt`` is the number of the decision
    for this demand. ``pod_uid`` is added once the pod is bound; the node believes it alone.
    ``share`` is the name of the share if the demand has several, ``""`` for the only one; with
    ``demand`` it identifies the holder. ``parts`` is the number of holders of the demand on all
    GPUs: its pod starts when each of them names it. ``limit_alone_micros`` is the limit while
    there is no other holder, 0 for the same limit. ``latency_sensitive`` has its launches served
    promptly, within its request. ``group`` is charged for the use; ``""`` for the pod itself.
    ``container`` is always ``""``: earlier versions identify a holder by it.
    """

    demand: str
    attempt: int = 0
    namespace: str = ""
    name: str = ""
    pod_uid: str = ""
    container: str = ""
    share: str = ""
    request_micros: int = 0
    limit_micros: int = 0
    limit_alone_micros: int = 0
    latency_sensitive: bool = False
    memory_bytes: int = 0
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    parts: int = 1
    group: str = ""


class VGPUSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The physical GPU of a vGPU; ``uuid`` is ``""`` until the node agent reports it.

    ``gpuid`` is the GPUID, unique on the node; ``""`` in a vGPU of an earlier version.
    ``selected_uuid`` is the GPU that the policy has chosen, ``""`` where the node's device plugin
    chooses.

    ``placeholder_uid`` is the uid of the placeholder that got this GPU: while that pod exists, no
    other pod gets the GPU. ``""`` if it is unknown.

    ``expected_memory_bytes`` is the memory before the GPU was known: holders that were added until
    then have their shares of it. 0 if the GPU was known from the start, and in a vGPU of an earlier
    version.

    ``memory_bytes`` is what may be given out; ``physical_memory_bytes`` is what the GPU has, where
    that is less, else 0.
    """

    node_name: str
    gpuid: str = ""
    pool: str = "onDemand"
    selected_uuid: str = ""
    uuid: str = ""
    placeholder_uid: str = ""
    model: str = ""
    memory_bytes: int = 0
    expected_memory_bytes: int = 0
    physical_memory_bytes: int = 0

    @property
    def is_static(self) -> bool:
        """Whether it is a GPU of an owned node, which needs no placeholder."""
        return self.pool == POOL_STATIC


class Summary(Struct, frozen=True, kw_only=True, gc=False):
    """The number of holders and the sums of their shares, as text for ``kubectl get``."""

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
    """One shareable GPU, identified by its node and its GPUID."""

    metadata: ObjectMeta
    spec: VGPUSpec
    status: VGPUStatus = field(default_factory=VGPUStatus)

    @property
    def gpuid(self) -> str:
        """The GPUID; in a vGPU of an earlier version the object's name."""
        return self.spec.gpuid or self.metadata.name


class ExcludedNode(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A node, or one vGPU of it, that could not run a SharePod's pod (``spec.gpu.setAside``).

    ``id`` is the GPUID if only that vGPU is excluded, ``""`` for the whole node. ``until`` is
    RFC 3339 text in UTC with whole seconds: it is not chosen before. ``times`` counts how often
    that happened, ``message`` is the last reason.
    """

    node: str
    id: str = ""
    until: str
    times: int = 1
    message: str = ""


class GPUSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The fields of ``SharePod.spec.gpu`` that controllers read; the dialect parses the rest.

    ``attempt`` counts the decisions of Sched, 0 before the first. ``set_aside`` is written by the
    device manager when it reschedules. ``id_given`` and ``node_given`` are written by Sched: the
    author has chosen the GPUs, or the node, so rescheduling keeps them.
    """

    id: str = ""
    ids: tuple[str, ...] = ()
    attempt: int = 0
    id_given: bool = False
    node_given: bool = False
    set_aside: tuple[ExcludedNode, ...] = ()


class SharePodSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The fields of a SharePod's PodSpec that hold the decision."""

    gpu: GPUSpec = field(default_factory=GPUSpec)
    node_name: str = ""


class Share(Struct, frozen=True, kw_only=True, gc=False):
    """The share of each GPU of a SharePod, or the sum of different ones, as text for people."""

    request: str = ""
    limit: str = ""
    memory: str = ""


class AllocatedGPU(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A GPU of which a SharePod has a share."""

    id: str
    uuid: str = ""
    model: str = ""


class GPUSummary(Struct, frozen=True, kw_only=True, gc=False):
    """All GPUs of a SharePod as text for ``kubectl get``; ``""`` without one."""

    ids: str = ""
    uuids: str = ""
    models: str = ""


class SharePodStatus(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The state of a SharePod: its node, its GPUs, and its pod's phase.

    Times are RFC 3339 text; ``""`` before they are known.
    """

    conditions: tuple[Condition, ...] = ()
    share: Share = field(default_factory=Share)
    node_name: str = ""
    gpus: tuple[AllocatedGPU, ...] = ()
    summary: GPUSummary = field(default_factory=GPUSummary)
    phase: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: str = ""
    finish_time: str = ""
    observed_generation: int = 0


class SharePod(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A SharePod, as controllers read it."""

    metadata: ObjectMeta
    spec: SharePodSpec = field(default_factory=SharePodSpec)
    status: SharePodStatus = field(default_factory=SharePodStatus)


class GPUDevice(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A physical GPU as NVML reports it; ``message`` says why it gets no new shares.

    That is because it is not ``healthy``, or its driver is too old: programs that run keep a GPU
    with an old driver.

    ``memory_bytes`` is the memory that may be given out; ``physical_memory_bytes`` is what the GPU
    has, where that is less, else 0.

    ``in_use`` says whether a pod other than a placeholder has it as a whole GPU, as the kubelet
    reports. ``filler`` is the name of the filler pod that has it, ``""`` for none.
    ``claim_driver`` is the DRA driver that offers it, ``""`` for none. ``unrecorded_pods`` are
    pods (``namespace/name``, the first :data:`MAX_UNRECORDED_PODS`) that run here by a grant for
    which no vGPU has a holder: meanwhile no other pod may get a share of it.
    """

    uuid: str
    index: int
    minor: int = 0
    model: str = ""
    memory_bytes: int = 0
    numa_node: int = -1
    cpu_list: str = ""
    healthy: bool = True
    message: str = ""
    in_use: bool = False
    filler: str = ""
    claim_driver: str = ""
    unrecorded_pods: tuple[str, ...] = ()
    physical_memory_bytes: int = 0

    @property
    def gives_shares(self) -> bool:
        """Whether new shares of it may be given."""
        return self.healthy and not self.message


class GPULink(Struct, frozen=True, kw_only=True, gc=False):
    """The link between two GPUs of a node (by index), for example ``NV2`` or ``SYS``."""

    a: int
    b: int
    link: str


class GPUNodeSpec(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The GPUs of a node; written by its node agent alone.

    ``count`` is the number of devices, for ``kubectl get``; ``dra_count`` the number of those
    that a DRA driver offers, which the Node object does not show. ``supports_owned`` says that
    the agent shares GPUs without a placeholder, ``supports_shares`` that it attaches several
    shares to a pod; one of an earlier release does not.
    """

    driver_version: str = ""
    agent_version: str = ""
    count: int = 0
    dra_count: int = 0
    supports_owned: bool = False
    supports_shares: bool = False
    devices: tuple[GPUDevice, ...] = ()
    links: tuple[GPULink, ...] = ()

    def unrecorded_pods(self, uuid: str) -> tuple[str, ...]:
        """The pods that run on a GPU without a holder."""
        return next((gpu.unrecorded_pods for gpu in self.devices if gpu.uuid == uuid), ())


class GPUNodeStatus(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Who owns the GPUs of a node; written by the device manager alone.

    ``mode`` is ``shared`` or ``owned``. The condition ``Owned`` says whether the static vGPUs of
    the node accept holders, and why not.
    """

    mode: str = MODE_SHARED
    conditions: tuple[Condition, ...] = ()


class GPUNode(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The GPUs of one node. Its name is the node's."""

    metadata: ObjectMeta
    spec: GPUNodeSpec = field(default_factory=GPUNodeSpec)
    status: GPUNodeStatus = field(default_factory=GPUNodeStatus)
