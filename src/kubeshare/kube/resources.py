"""Describes kinds of objects, and the URL paths that follow from them.

A ``Resource`` also says into which type its objects are decoded. By default that is the raw
``dict``; ``PODS.into(Pod)`` is the same resource decoded into a narrow frozen ``msgspec.Struct``
that has only the fields its reader uses. Narrow Structs are for reading only: writing one back
would drop every other field.
"""

from typing import Any, Generic, TypeAlias, TypeVar, overload
from urllib.parse import quote

from kubeshare.kube.client.decoding import SPEC_AND_STATUS

Raw: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON has it."""

T = TypeVar("T")
S = TypeVar("S")


class Resource(Generic[T]):
    """A kind of objects in the API.

    Args:
        group: API group, ``""`` for the core group.
        version: for example ``v1``.
        plural: its name in paths, for example ``pods``.
        kind: its name in manifests, for example ``Pod``.
        namespaced: whether objects live in namespaces.
        shape: the type that objects are decoded into; raw dicts by default.
    """

    __slots__ = ("group", "kind", "namespaced", "plural", "shape", "version")

    @overload
    def __init__(
        self: "Resource[Raw]",
        group: str,
        version: str,
        plural: str,
        kind: str,
        *,
        namespaced: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self, group: str, version: str, plural: str, kind: str, *, namespaced: bool, shape: type[T]
    ) -> None: ...
    def __init__(  # noqa: PLR0913 - the fields of a resource
        self,
        group: str,
        version: str,
        plural: str,
        kind: str,
        *,
        namespaced: bool = True,
        shape: Any = dict,
    ) -> None:
        self.group = group
        self.version = version
        self.plural = plural
        self.kind = kind
        self.namespaced = namespaced
        self.shape: type[T] = shape

    def __repr__(self) -> str:
        return f"Resource({self.plural}.{self.group or 'core'}/{self.version})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, str, type]:
        return self.group, self.version, self.plural, self.shape

    @property
    def api_version(self) -> str:
        """``group/version`` as in manifests; ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def into(self, shape: type[S]) -> "Resource[S]":
        """The same resource with objects decoded into another type."""
        return Resource(
            self.group,
            self.version,
            self.plural,
            self.kind,
            namespaced=self.namespaced,
            shape=shape,
        )

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of an object, of a collection, or of a subresource.

        Args:
            namespace: of the object; ``""`` means all namespaces (only for a collection).
            name: of the object; ``""`` means the collection.
            subresource: for example ``status`` or ``binding``.

        Raises:
            ValueError: a namespace for a cluster-scoped kind, or none for a namespaced object.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} objects are cluster-scoped: no namespace {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r}: a namespaced object needs its namespace")
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, shape=SPEC_AND_STATUS)
SERVICES = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
PRIORITY_LEVELS = Resource(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "prioritylevelconfigurations",
    "PriorityLevelConfiguration",
    namespaced=False,
)
FLOW_SCHEMAS = Resource(
    "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
SELF_SUBJECT_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
MUTATING_ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)
MUTATING_ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
