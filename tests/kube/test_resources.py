"""The API paths of Kubernetes' kinds, as its documentation has them."""

import msgspec
import pytest

from kubeshare.kube import resources
from kubeshare.kube.client.decoding import SPEC_AND_STATUS
from kubeshare.kube.meta import (
    Condition,
    Identity,
    Key,
    ObjectMeta,
    identity_of,
    key_of,
    metadata_of,
)
from kubeshare.kube.resources import EVENTS, NODES, PODS, Resource

PATHS = {
    ("v1", "Namespace"): "/api/v1/namespaces/x",
    ("v1", "Node"): "/api/v1/nodes/x",
    ("v1", "Pod"): "/api/v1/namespaces/n/pods/x",
    ("v1", "Service"): "/api/v1/namespaces/n/services/x",
    ("v1", "ServiceAccount"): "/api/v1/namespaces/n/serviceaccounts/x",
    ("v1", "ResourceQuota"): "/api/v1/namespaces/n/resourcequotas/x",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/n/persistentvolumeclaims/x",
    ("v1", "PersistentVolume"): "/api/v1/persistentvolumes/x",
    ("v1", "ConfigMap"): "/api/v1/namespaces/n/configmaps/x",
}
GROUPS = {
    "admissionregistration.k8s.io/v1": {
        "MutatingAdmissionPolicy": "mutatingadmissionpolicies/x",
        "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings/x",
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies/x",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings/x",
    },
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition": "customresourcedefinitions/x"},
    "apps/v1": {
        "DaemonSet": "namespaces/n/daemonsets/x",
        "Deployment": "namespaces/n/deployments/x",
    },
    "authentication.k8s.io/v1": {"SelfSubjectReview": "selfsubjectreviews/x"},
    "batch/v1": {"Job": "namespaces/n/jobs/x"},
    "coordination.k8s.io/v1": {"Lease": "namespaces/n/leases/x"},
    "events.k8s.io/v1": {"Event": "namespaces/n/events/x"},
    "flowcontrol.apiserver.k8s.io/v1": {
        "FlowSchema": "flowschemas/x",
        "PriorityLevelConfiguration": "prioritylevelconfigurations/x",
    },
    "policy/v1": {"PodDisruptionBudget": "namespaces/n/poddisruptionbudgets/x"},
    "rbac.authorization.k8s.io/v1": {
        "ClusterRole": "clusterroles/x",
        "ClusterRoleBinding": "clusterrolebindings/x",
        "Role": "namespaces/n/roles/x",
        "RoleBinding": "namespaces/n/rolebindings/x",
    },
    "resource.k8s.io/v1": {
        "DeviceClass": "deviceclasses/x",
        "ResourceClaim": "namespaces/n/resourceclaims/x",
        "ResourceSlice": "resourceslices/x",
    },
    "scheduling.k8s.io/v1": {"PriorityClass": "priorityclasses/x"},
    "storage.k8s.io/v1": {"StorageClass": "storageclasses/x"},
}


def test_each_kind_has_the_path_of_the_api_reference() -> None:
    kinds = [each for each in vars(resources).values() if isinstance(each, Resource)]
    found = {
        (each.api_version, each.kind): each.path("n" if each.namespaced else "", "x")
        for each in kinds
    }
    in_groups = {
        (group, kind): f"/apis/{group}/{path}"
        for group, kinds in GROUPS.items()
        for kind, path in kinds.items()
    }
    assert found == PATHS | in_groups
    assert all(each.group == each.api_version.rpartition("/")[0] for each in kinds)


def test_names_are_quoted_in_paths() -> None:
    assert PODS.path("a/b", "c?d", "e/f") == "/api/v1/namespaces/a%2Fb/pods/c%3Fd/e%2Ff"
    assert EVENTS.path() == "/apis/events.k8s.io/v1/events"
    assert EVENTS.path("n") == "/apis/events.k8s.io/v1/namespaces/n/events"


def test_a_path_needs_the_namespace_that_the_kind_has() -> None:
    with pytest.raises(ValueError, match="Node objects are cluster-scoped: no namespace 'n'"):
        NODES.path("n", "x")
    with pytest.raises(ValueError, match="Pod 'x': a namespaced object needs its namespace"):
        PODS.path(name="x")


def test_a_kind_of_its_own_has_the_fields_that_it_is_given() -> None:
    widgets = Resource("example.test", "v2", "widgets", "Widget")
    assert (widgets.group, widgets.version, widgets.plural) == ("example.test", "v2", "widgets")
    assert (widgets.kind, widgets.namespaced, widgets.shape) == ("Widget", True, dict)
    shaped = widgets.into(int)
    assert (shaped.kind, shaped.api_version) == ("Widget", "example.test/v2")


def test_resources_are_equal_if_they_are_one_kind_in_one_shape() -> None:
    shaped = EVENTS.into(int)
    assert shaped.shape is int
    assert shaped != EVENTS
    assert shaped.into(dict) == EVENTS
    assert hash(shaped.into(dict)) == hash(EVENTS)
    assert (EVENTS == "events", repr(EVENTS)) == (False, "Resource(events.events.k8s.io/v1)")
    assert repr(PODS) == "Resource(pods.core/v1)"
    assert PODS.shape is SPEC_AND_STATUS
    assert NODES.into(int).namespaced is False


def test_what_an_object_does_not_say_is_empty() -> None:
    assert metadata_of({}) == ObjectMeta(
        name="",
        namespace="",
        uid="",
        resource_version="",
        generation=0,
        creation_timestamp=None,
        deletion_timestamp=None,
        labels={},
        annotations={},
        finalizers=(),
        owner_references=(),
    )
    assert identity_of({}) == identity_of({"metadata": {}}) == Identity("", "")
    assert key_of({"metadata": {"name": "a"}}) == Key("", "a")
    assert msgspec.convert({"type": "Ready", "status": "True"}, Condition) == Condition(
        type="Ready",
        status="True",
        reason="",
        message="",
        last_transition_time=None,
        observed_generation=0,
    )


def test_the_controller_is_the_owner_that_says_so() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}
    metadata = metadata_of({"metadata": {"ownerReferences": [owner]}})
    assert metadata.controller is None
    assert msgspec.json.decode(msgspec.json.encode(metadata)) == {"ownerReferences": [owner]}
    managed = metadata_of({"metadata": {"ownerReferences": [owner, owner | {"controller": True}]}})
    assert managed.controller == managed.owner_references[1]


def test_a_key_is_shown_as_kubectl_takes_it() -> None:
    assert (str(Key("ns", "a")), str(Key("", "n1"))) == ("ns/a", "n1")
