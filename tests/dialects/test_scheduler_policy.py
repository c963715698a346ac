"""Policy files of kube-scheduler 1.22, as configurations of today."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.scheduler_policy import configuration_of

GPUSHARE = {
    "kind": "Policy",
    "apiVersion": "v1",
    "extenders": [
        {
            "urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "enableHttps": False,
            "nodeCacheCapable": True,
            "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
            "ignorable": False,
        }
    ],
}


def with_extender(**fields: Any) -> dict[str, Any]:
    return {"kind": "Policy", "extenders": [GPUSHARE["extenders"][0] | fields]}  # type: ignore[operator]


def test_the_published_policy_of_gpushare_is_translated_whole() -> None:
    found, left = configuration_of(GPUSHARE)
    assert left == []
    assert found == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "extenders": [
            {
                "urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler",
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "ignorable": False,
                "enableHTTPS": False,
                "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
            }
        ],
    }


def test_the_other_fields_of_an_extender_have_their_new_form() -> None:
    given = {"enableHttps": True, "httpTimeout": 5_000_000_000, "weight": 2}
    [found] = configuration_of(
        with_extender(**given, tlsConfig={"insecure": True, "x": 1}, prioritizeVerb="rank")
    )[0]["extenders"]
    assert (found["enableHTTPS"], found["httpTimeout"], found["weight"]) == (True, "5s", 2)
    assert (found["tlsConfig"], found["prioritizeVerb"]) == ({"insecure": True}, "rank")
    halves = configuration_of(with_extender(httpTimeout=1_500_000_000))[0]
    assert halves["extenders"][0]["httpTimeout"] == "1500000000ns"


def test_what_is_not_translated_is_named() -> None:
    policy = with_extender(extra=1)
    policy |= {"predicates": [{"name": "PodFitsPorts"}], "priorities": [], "alwaysCheck": True}
    _, left = configuration_of(policy)
    names = [line.partition(":")[0] for line in left]
    assert names == ["extenders[0].extra", "alwaysCheck", "predicates"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (None, "kind"),
        ([], "Policy"),
        ({"kind": "KubeSchedulerConfiguration"}, "kind"),
        ({"kind": "Policy", "extenders": {}}, ""),
        ({"kind": "Policy", "extenders": "x"}, "extenders"),
        ({"kind": "Policy", "extenders": [{}] * 65}, "extenders"),
        ({"kind": "Policy", "extenders": ["x"]}, "extenders[0]"),
        ({"kind": "Policy", "extenders": [{}]}, "extenders[0].urlPrefix"),
        (with_extender(httpTimeout=-1), "extenders[0].httpTimeout"),
        (with_extender(httpTimeout=True), "extenders[0].httpTimeout"),
        (with_extender(managedResources={"name": "x"}), "extenders[0].managedResources"),
        (with_extender(managedResources=["x"]), "extenders[0].managedResources[0]"),
        (with_extender(tlsConfig="x"), "extenders[0].tlsConfig"),
    ],
)
def test_what_is_no_policy_is_refused_by_name(policy: object, field: str) -> None:
    if not field:
        assert configuration_of(policy)[0]["extenders"] == []
        return
    with pytest.raises(InvalidValueError) as refused:
        configuration_of(policy)
    assert refused.value.field == field


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["urlPrefix", "tlsConfig", "httpTimeout", "name"]), inner)
    ),
    max_leaves=5,
)


@given(_VALUES, _VALUES)
def test_any_file_is_translated_or_refused(extenders: object, other: object) -> None:
    with suppress(InvalidValueError):
        found, _ = configuration_of({"kind": "Policy", "extenders": extenders, "x": other})
        assert all(isinstance(each["urlPrefix"], str) for each in found["extenders"])
