"""The ConfigMap of gpu-admission becomes GPUQuotas."""

from pathlib import Path

import pytest
import yaml

from expectations.pods import expect_running
from expectations.scheduling import expect_pending
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.quotas import expect_gaia_limits, label_gpus
from fakes.cluster.quotas import gaia_limits as limits
from fakes.cluster.quotas import write_gaia_quotas as write
from kubeshare.api.types.gpu_quota import GPUQUOTAS, GPULimit
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.quota.gaia import RETRY_SECONDS
from kubeshare.device_manager.quota.gaia_config import NAME, NAMESPACE, parse
from kubeshare.kube.resources import EVENTS
from kubeshare.simulator.control import Fault

EXAMPLE = Path(__file__).parents[2] / "examples" / "gaia" / "gpu-quota.yaml"


def test_each_model_is_a_limit_over_all_pools() -> None:
    found = parse('{"a": {"quota": {"V100": 2, "M40": 4}, "pool": ["x", "y", "x"]}}')
    assert found["a"] == (
        GPULimit(model="M40", pools=("x", "y"), gpus=4),
        GPULimit(model="V100", pools=("x", "y"), gpus=2),
    )


def test_a_namespace_that_is_listed_with_nothing_may_hold_nothing() -> None:
    assert parse('{"a": {}, "b": {"pool": ["x"]}}') == {
        "a": (GPULimit(gpus=0),),
        "b": (GPULimit(pools=("x",), gpus=0),),
    }


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"quota": {"M40": -1}}}', "{"])
def test_anything_else_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        parse(text)
    assert error.value.field == "data[gpu_quota]"


def test_the_example_is_valid() -> None:
    written = yaml.safe_load(EXAMPLE.read_text())
    assert (written["metadata"]["namespace"], written["metadata"]["name"]) == (NAMESPACE, NAME)
    assert parse(written["data"]["gpu_quota"]) == {
        "team-a": (
            GPULimit(model="M40", pools=("research",), gpus=2),
            GPULimit(model="V100", pools=("research",), gpus=1),
        ),
        "team-b": (GPULimit(gpus=0),),
    }


@scenario(n1=1, n2=1)
async def test_the_quotas_of_the_config_map_are_in_force(cluster: FakeCluster) -> None:
    label_gpus(cluster, "n1", pool="web", model="V")
    label_gpus(cluster, "n2", pool="research", model="V")
    write(cluster, default={"quota": {"V": 1}, "pool": ["research"]})
    cluster.start()
    await expect_gaia_limits(cluster)
    assert limits(cluster) == [{"model": "V", "pools": ["research"], "gpus": 1}]
    await cluster.run("a", "0.6")
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n2"
    cluster.share("b", "0.6")
    words = "GPUQuota gaia is 1 V GPUs in pool research: 0.6 held"
    await expect_pending(cluster, "b", words, reason="QuotaExceeded")
    write(cluster)
    await expect_gaia_limits(cluster, None)
    await expect_running(cluster, "b")


@scenario(n1=1)
async def test_what_is_not_valid_changes_nothing_and_is_reported(cluster: FakeCluster) -> None:
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await expect_gaia_limits(cluster)
    write(cluster, default={"quota": {"V100": "many"}})
    await cluster.until(lambda: _invalid(cluster))
    assert limits(cluster) == [{"model": "V100", "gpus": 1}]


@scenario(n1=1)
async def test_a_quota_that_somebody_changed_is_put_right(cluster: FakeCluster) -> None:
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await expect_gaia_limits(cluster)
    more = {"limits": [{"gpus": 99}]}
    cluster.server.change(GPUQUOTAS, "gaia", "default", lambda obj: obj["spec"].update(more))
    await expect_gaia_limits(cluster, [{"model": "V100", "gpus": 1}])


@scenario(n1=1)
async def test_a_namespace_that_comes_later_gets_its_quota(cluster: FakeCluster) -> None:
    cluster.server.inject(Fault.answer(404), verb="patch", resource="gpuquotas")
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await expect_gaia_limits(cluster, seconds=90)


def _invalid(cluster: FakeCluster) -> bool:
    return any(each["reason"] == "InvalidQuotas" for each in cluster.server.all(EVENTS))


@scenario(n1=1)
async def test_limits_that_the_api_server_refuses_are_reported_by_their_namespace(
    cluster: FakeCluster,
) -> None:
    refuse = Fault.answer(422, "Invalid")
    cluster.server.inject(refuse, verb="patch", resource="gpuquotas", times=1)
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await cluster.until(lambda: _invalid(cluster))
    [event] = [each for each in cluster.server.all(EVENTS) if each["reason"] == "InvalidQuotas"]
    assert event["note"].startswith("default: ")
    assert event["regarding"]["name"] == NAME
    await cluster.quiet(RETRY_SECONDS * 2)
    assert limits(cluster) is None, "it would be refused again"


@scenario(n1=1)
async def test_a_quota_of_that_name_that_somebody_else_made_is_left_alone(
    cluster: FakeCluster,
) -> None:
    theirs = {"metadata": {"name": "gaia", "namespace": "other"}, "spec": {"limits": []}}
    cluster.server.seed(GPUQUOTAS, theirs)
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await expect_gaia_limits(cluster)
    labels = cluster.server.all(GPUQUOTAS, "default")[0]["metadata"]["labels"]
    assert labels == {"kubeshare.nthu/from": "gpu-admission"}
    write(cluster)
    await expect_gaia_limits(cluster, None)
    assert limits(cluster, "other") == []


@scenario(n1=1)
async def test_a_quota_that_is_gone_already_is_not_deleted_again(cluster: FakeCluster) -> None:
    write(cluster, default={"quota": {"V100": 1}})
    cluster.start("devices")
    await expect_gaia_limits(cluster)
    uid = cluster.server.all(GPUQUOTAS, "default")[0]["metadata"]["uid"]
    cluster.server.inject(Fault.answer(404, "NotFound"), verb="delete", resource="gpuquotas")
    write(cluster)
    await cluster.quiet(30)
    [delete] = [each for each in cluster.server.requests if each.verb == "delete"]
    assert delete.body["preconditions"] == {"uid": uid}
