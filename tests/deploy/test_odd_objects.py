"""Objects that nobody would write: no policy fails on them, nor has to do with those of others.

All requests are dry runs. What the API server counts as an error of a match condition is read
from its metrics: with ``failurePolicy: Ignore`` nothing else shows it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import manifests
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests as installed
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

FAILED = re.compile(r'match_condition_evaluation_errors_total\{.*name="([^"]+)"')
EXAMPLES = 40
POLICY = "AdmissionPolicy"
"""What each refusal by a policy says."""


def refusal(cluster: ApiServer, method: str, path: str, body: Raw, *how: str) -> str:
    """Why the API server would refuse a request; ``""`` if it would not."""
    content_type = how[0] if how else "application/json"
    try:
        cluster.requests.send(method, f"{path}?dryRun=All", body, content_type=content_type)
    except LabError as error:
        return str(error)
    return ""


def condition_errors(cluster: ApiServer) -> set[str]:
    """The policies of which a match condition had an error since the API server was started."""
    return set(FAILED.findall(cluster.kubectl("get", "--raw", "/metrics")))


@pytest.fixture(scope="module")
def home(cluster: ApiServer) -> Iterator[str]:
    """A namespace with a pod of its own; at the end, no match condition had an error."""
    name = f"test-{uuid4().hex[:8]}"
    system = [one for one in installed.load(installed.Options()) if one["kind"] == "Namespace"]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(system))
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("create", "-n", name, "-f", "-", stdin=json.dumps(manifests.pod("odd")))
    yield name
    assert [each for each in condition_errors(cluster) if each.startswith("kubeshare")] == []
    cluster.kubectl("delete", "pod", "odd", "-n", name, "--force")


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    """An object with some of these fields, each of which may be null."""
    return st.fixed_dictionaries({}, optional={key: st.none() | fields[key] for key in fields})


NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from(
    ["a", "kubeshare", "example.org/kubeshare.nthu", "kubeshare.example.org/request", "gpu_mem"]
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
OWNERS = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["v1", "kubeshare.nthu.example.org/v1"]),
            "kind": st.sampled_from(["ConfigMap", "SharePod"]),
            "name": NAMES,
            "uid": NAMES,
            "controller": st.none() | st.booleans(),
        },
        optional={"blockOwnerDeletion": st.none() | st.booleans()},
    ),
    max_size=2,
    unique_by=lambda owner: owner["controller"],
)
METADATA = maybe(
    labels=st.dictionaries(KEYS, st.sampled_from(["", "a"]), max_size=2),
    annotations=st.dictionaries(KEYS, TEXTS, max_size=2),
    ownerReferences=OWNERS,
    finalizers=st.lists(st.sampled_from(["example.org/a", "example.org/b"]), max_size=2),
)
QUANTITIES = st.sampled_from(["0", "1", "1Ki", "1e3", 0, 1])
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": QUANTITIES | st.just("100m"),
        "memory": QUANTITIES,
        "nvidia.com/gpu": QUANTITIES,
        "example.org/vgpu": QUANTITIES,
    },
) | st.just({"cpu": "1", "hugepages-2Mi": "2Mi"})
RESOURCES = st.none() | st.builds(
    lambda amounts, which: dict.fromkeys(which, amounts),
    st.none() | AMOUNTS,
    st.sampled_from([[], ["limits"], ["limits", "requests"]]),
)


def containers(names: str, least: int, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Valid containers of different names."""
    one = st.builds(
        lambda name, fields: {"name": name, "image": "x"} | fields,
        st.sampled_from(names),
        maybe(
            env=st.just([]),
            command=st.lists(TEXTS, max_size=2),
            securityContext=st.just({}),
            **more,
        ),
    )
    return st.lists(one, min_size=least, max_size=2, unique_by=lambda each: each["name"])


CONTAINERS = containers("abc", 1, resources=RESOURCES)
CLAIMS = st.lists(
    st.builds(
        lambda name, field, claim: {"name": name, field: claim},
        NAMES,
        st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"]),
        NAMES,
    ),
    max_size=2,
    unique_by=lambda each: each["name"],
)
TOLERATIONS = st.lists(
    st.sampled_from([{"operator": "Exists"}, {"key": "a"}, {"key": "b", "value": None}]),
    max_size=2,
)
SPECS = st.builds(
    lambda containers, where, more: {"containers": containers} | where | more,
    CONTAINERS,
    st.sampled_from(
        [
            {},
            {"nodeName": ""},
            {"nodeName": "n1", "schedulingGates": None},
            {"schedulingGates": [{"name": "example.org/a"}]},
        ]
    ),
    maybe(
        initContainers=containers("xyz", 0, resources=RESOURCES, restartPolicy=st.just("Always")),
        resourceClaims=CLAIMS,
        nodeSelector=st.dictionaries(KEYS, st.just("a"), max_size=1),
        affinity=st.just({}),
        volumes=st.lists(st.just({"name": "a"}), max_size=1),
        tolerations=TOLERATIONS,
        schedulerName=st.sampled_from(["", "volcano"]),
    ),
)


class Tally:
    """Counts the requests that reached the policies: the API server validates before them."""

    def __init__(self) -> None:
        self._reached = 0
        self._others: list[str] = []

    def note(self, said: str) -> None:
        """Count a request by its refusal."""
        if not said or POLICY in said:
            self._reached += 1
        else:
            self._others.append(said)

    def check(self) -> None:
        """Four of five reached them."""
        sent = self._reached + len(self._others)
        assert self._reached >= 0.8 * sent, (self._reached, self._others)


def test_a_pod_of_others_is_not_refused_by_a_policy(cluster: ApiServer, home: str) -> None:
    tally = Tally()

    @settings(max_examples=EXAMPLES)
    @given(metadata=METADATA, spec=SPECS, namespace=st.sampled_from([home, NAMESPACE]))
    def create(metadata: Raw, spec: Raw, namespace: str) -> None:
        where = f"/api/v1/namespaces/{namespace}/pods"
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"} | metadata}
        said = refusal(cluster, "POST", where, pod | {"spec": spec})
        tally.note(said)
        assert POLICY not in said

    create()
    tally.check()


CHANGES = st.one_of(
    st.tuples(
        st.just(""),
        st.builds(
            lambda spec, status: {"spec": spec, "status": status},
            st.sampled_from([{}, {"activeDeadlineSeconds": 9}, {"nodeSelector": None}]),
            st.sampled_from([None, {"phase": "Failed"}]),
        ),
    ),
    st.tuples(
        st.just("/status"),
        maybe(
            status=maybe(
                phase=st.sampled_from(["", "Running", "Failed"]), conditions=st.just([]), odd=TEXTS
            ),
            spec=st.just({"nodeName": "n2"}),
        ),
    ),
    st.tuples(st.just("/resize"), st.sampled_from([{}, {"status": None}])),
    st.tuples(
        st.just("/ephemeralcontainers"),
        st.fixed_dictionaries(
            {"spec": st.fixed_dictionaries({"ephemeralContainers": containers("xyz", 1)})}
        ),
    ),
)


def test_a_change_of_a_pod_of_others_is_not_refused_by_a_policy(
    cluster: ApiServer, home: str
) -> None:
    tally = Tally()

    @settings(max_examples=EXAMPLES)
    @given(change=CHANGES, metadata=METADATA)
    def patch(change: tuple[str, Raw], metadata: Raw) -> None:
        subresource, fields = change
        which = f"/api/v1/namespaces/{home}/pods/odd{subresource}"
        body = {"metadata": metadata} | fields
        said = refusal(cluster, "PATCH", which, body, "application/merge-patch+json")
        tally.note(said)
        assert POLICY not in said

    patch()
    tally.check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES | KEYS, inner, max_size=2),
    max_leaves=4,
)
UNTYPED = (
    *("initContainers", "schedulingGates", "volumes", "tolerations", "affinity", "nodeSelector"),
    *("overhead", "resourceClaims", "securityContext", "unknown"),
)
IN_A_CONTAINER = ("resources", "env", "envFrom", "args", "command", "volumeMounts", "ports")


def odd(*fields: str) -> st.SearchStrategy[Raw]:
    """Any JSON in some of these fields, and lists of objects with any JSON, as they might be."""
    named = st.fixed_dictionaries({"name": JSON}, optional={"resources": JSON, "limits": JSON})
    value = JSON | st.lists(named | JSON, max_size=2)
    return st.fixed_dictionaries({}, optional=dict.fromkeys(fields, value))


def test_what_the_schema_does_not_type_lets_no_policy_fail(cluster: ApiServer, home: str) -> None:
    """The PodSpec of a SharePod is kept as it is; what is wrong in it shows with its pod."""
    tally = Tally()

    @settings(max_examples=EXAMPLES)
    @given(
        spec=odd(*UNTYPED),
        container=odd(*IN_A_CONTAINER),
        resources=st.none() | maybe(limits=JSON | AMOUNTS, requests=JSON | AMOUNTS),
        metadata=METADATA,
    )
    def create(spec: Raw, container: Raw, resources: Raw | None, metadata: Raw) -> None:
        main: Raw = {"name": "main", "image": "x"} | container
        if resources is not None:
            main["resources"] = resources
        sharepod = manifests.sharepod("new", {"request": "0.1"}, metadata=metadata)
        sharepod["spec"] |= {"containers": [main], **spec}
        where = f"/apis/kubeshare.nthu/v1/namespaces/{home}/sharepods"

        said = refusal(cluster, "POST", where, sharepod)
        tally.note(said)
        assert "resulted in error" not in said
        assert "HTTP Error 5" not in said

    create()
    tally.check()


IN_A_TEMPLATE = ("labels", "annotations")
SUBREQUESTS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "deviceClassName": NAMES}),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each["name"],
)
REQUESTS = st.lists(
    st.builds(
        lambda name, asked: {"name": name} | asked,
        NAMES,
        st.fixed_dictionaries(
            {
                "exactly": st.fixed_dictionaries(
                    {"deviceClassName": NAMES}, optional={"count": st.none() | st.integers(1, 2)}
                )
            }
        )
        | st.fixed_dictionaries({"firstAvailable": SUBREQUESTS}),
    ),
    max_size=2,
    unique_by=lambda each: each["name"],
)


def test_a_claim_of_another_driver_is_not_refused_by_a_policy(
    cluster: ApiServer, home: str
) -> None:
    tally = Tally()

    @settings(max_examples=EXAMPLES // 2)
    @given(metadata=METADATA, devices=st.none() | maybe(requests=REQUESTS), template=st.booleans())
    def create(metadata: Raw, devices: Raw | None, template: bool) -> None:
        spec: Raw = {"devices": devices}
        kind = "ResourceClaimTemplate" if template else "ResourceClaim"
        if template:
            inner = {each: metadata[each] for each in IN_A_TEMPLATE if each in metadata}
            spec = {"spec": spec, "metadata": inner}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "new"} | metadata,
            "spec": spec,
        }
        where = f"/apis/resource.k8s.io/v1/namespaces/{home}/{kind.lower()}s"

        said = refusal(cluster, "POST", where, claim)
        tally.note(said)
        assert POLICY not in said

    create()
    tally.check()


@pytest.mark.parametrize(("failure", "action"), [("Ignore", "Deny"), ("Fail", "Warn")])
def test_an_error_of_a_match_condition_is_seen(
    cluster: ApiServer, failure: str, action: str
) -> None:
    """What the fixture reads at the end does count such errors; who only warns refuses none."""
    name = f"fails-{uuid4().hex[:8]}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "failurePolicy": failure,
        "matchConstraints": {"resourceRules": [rule | {"resources": ["configmaps"]}]},
        "matchConditions": [{"name": "fails", "expression": f"object.data['{name}'] == ''"}],
        "validations": [{"expression": "true"}],
    }
    version = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    kind = "ValidatingAdmissionPolicy"
    binding = {"policyName": name, "validationActions": [action]}
    policies = [
        version | {"kind": kind, "spec": spec},
        version | {"kind": f"{kind}Binding", "spec": binding},
    ]
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(policies))
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    def seen() -> bool:
        assert refusal(cluster, "POST", "/api/v1/namespaces/default/configmaps", configmap) == ""
        return name in condition_errors(cluster)

    try:
        wait_until(seen, "the error to be counted")
    finally:
        cluster.kubectl("delete", kind.lower(), name)
        cluster.kubectl("delete", f"{kind.lower()}binding", name)
