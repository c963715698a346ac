"""What is known of a cluster, as the checks need it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from kubeshare.api.types.v1 import GPUNode
from kubeshare.install.manifests import Manifest
from kubeshare.kube.controller.leader_election import Lease
from kubeshare.kube.meta import ObjectMeta


class NodeInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """The programs of a node, as its kubelet reports them."""

    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a node offers."""

    node_info: NodeInfo = field(default_factory=NodeInfo)
    allocatable: dict[str, str | int] = {}


class Node(Struct, frozen=True, kw_only=True):
    """The fields of a Node that are read."""

    metadata: ObjectMeta
    status: NodeStatus = field(default_factory=NodeStatus)


class SliceSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The driver and the node of a ResourceSlice."""

    driver: str = ""
    node_name: str = ""


class Slice(Struct, frozen=True, kw_only=True):
    """The fields of a ResourceSlice that are read."""

    metadata: ObjectMeta
    spec: SliceSpec = field(default_factory=SliceSpec)


class Server(Struct, frozen=True, kw_only=True):
    """The API server.

    Attributes:
        version: of Kubernetes, for example ``v1.36.3``.
        now: its clock, in whole seconds; None if it does not say.
        ahead_seconds: its clock less that of this machine.
    """

    version: str
    now: datetime | None = None
    ahead_seconds: float = 0.0


class PlatformFacts(Struct, frozen=True, kw_only=True):
    """What does not depend on KubeShare being installed.

    Attributes:
        server: the API server.
        missing_kinds: kinds that KubeShare needs and that the server does not have.
        gates: by feature gate of the API server, whether it is on.
        nodes: all nodes.
        gpunodes: what node agents report; none before an installation.
        slices: what DRA drivers offer.
        runtime_classes: by the name of a RuntimeClass, its handler.
        webhooks: admission webhooks as dicts, each with ``configuration``, the name of its object.
        namespace_labels: those of KubeShare's namespace, as it is or will be.
        node_leases: the Leases by which kubelets show that they live.
        unread: by the name of one of these that could not be read, why.
    """

    server: Server
    missing_kinds: Sequence[str] = ()
    gates: Mapping[str, bool] = {}
    nodes: Sequence[Node] = ()
    gpunodes: Sequence[GPUNode] = ()
    slices: Sequence[Slice] = ()
    runtime_classes: Mapping[str, str] = {}
    webhooks: Sequence[Mapping[str, Any]] = ()
    namespace_labels: Mapping[str, str] = {}
    node_leases: Sequence[Lease] = ()
    unread: Mapping[str, str] = {}


class InstallationFacts(Struct, frozen=True, kw_only=True):
    """What belongs to KubeShare.

    Attributes:
        now: the clock of the API server.
        wanted: the manifests of this version.
        objects: the objects of KubeShare by kind, namespace and name.
        leases: those of its leaders.
        configuration: the text of the ConfigMap; None if there is none.
        gpunodes: what the node agents report.
        gpu_nodes: the names of the nodes that have GPUs.
        attached_nodes: the names of the nodes where its DRA driver is registered.
        unread: as for :class:`PlatformFacts`.
    """

    now: datetime
    wanted: Sequence[Manifest] = ()
    objects: Mapping[tuple[str, str, str], Mapping[str, Any]] = {}
    leases: Sequence[Lease] = ()
    configuration: str | None = ""
    gpunodes: Sequence[GPUNode] = ()
    gpu_nodes: frozenset[str] = frozenset()
    attached_nodes: frozenset[str] = frozenset()
    unread: Mapping[str, str] = {}
