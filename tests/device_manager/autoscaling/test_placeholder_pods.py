"""Pods for which no node has a GPU are shown to cluster autoscalers."""

from pathlib import Path

import pytest

from expectations.pods import expect_any_running, expect_event, expect_running
from expectations.scheduling import expect_decided, expect_pending
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.policy_package import install_policy
from kubeshare.api.types.constants import LABEL_REQUESTER_UID, NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.device_manager.autoscaling.placeholder_pods import PENDING_SECONDS
from kubeshare.kube.resources import PODS, Raw


def scale_up_pods(cluster: FakeCluster) -> list[Raw]:
    """The pods that ask a cluster autoscaler for another node."""
    pods = cluster.server.all(PODS, NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["labels"]["kubeshare.nthu/role"] == "missing"]


async def expect_scale_up_pods(cluster: FakeCluster, count: int) -> list[Raw]:
    await cluster.until(lambda: len(scale_up_pods(cluster)) == count)
    return scale_up_pods(cluster)


async def full(cluster: FakeCluster, most: int) -> None:
    """One SharePod has the only GPU."""
    cluster.configure(autoscaler={"placeholders": most})
    cluster.start()
    await cluster.run("whole", "1")


@scenario(n1=1)
async def test_a_pod_asks_for_a_node_and_goes_when_there_is_one(cluster: FakeCluster) -> None:
    await full(cluster, 2)
    cluster.share("a", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    (pod,) = await expect_scale_up_pods(cluster, 1)
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n2"}
    assert pod["spec"]["priorityClassName"] == "kubeshare-missing"
    await expect_event(cluster, "a", "GPUMissing")
    cluster.add_node("n2", 1)
    await expect_running(cluster, "a")
    await expect_scale_up_pods(cluster, 0)


@scenario(n1=1)
async def test_it_goes_when_the_sharepod_waits_no_more(cluster: FakeCluster) -> None:
    await full(cluster, 2)
    cluster.share("a")
    await expect_scale_up_pods(cluster, 1)
    cluster.delete("whole")
    await expect_running(cluster, "a")
    await expect_scale_up_pods(cluster, 0)
    cluster.share("b", "1")
    await expect_scale_up_pods(cluster, 1)
    cluster.delete("b")
    await expect_scale_up_pods(cluster, 0)


@scenario(n1=1)
async def test_there_are_never_more_than_configured_and_none_without(cluster: FakeCluster) -> None:
    await full(cluster, 2)
    for name in "abcd":
        cluster.share(name, "1")
    await expect_scale_up_pods(cluster, 2)
    await cluster.quiet(20)
    assert len(scale_up_pods(cluster)) == 2
    cluster.configure()
    await expect_scale_up_pods(cluster, 0)
    await cluster.quiet(20)
    assert not scale_up_pods(cluster)


@scenario(n1=1)
async def test_a_sharepod_that_a_new_node_would_not_help_asks_for_none(
    cluster: FakeCluster,
) -> None:
    await full(cluster, 4)
    cluster.share("beside", affinity="red")
    cluster.share("second", "1", affinity="red")
    cluster.delete("whole")
    await expect_any_running(cluster, "beside", "second")
    await cluster.quiet(PENDING_SECONDS * 4)
    assert not scale_up_pods(cluster)


@scenario(n1=1)
async def test_none_is_made_for_who_waits_a_moment_only(cluster: FakeCluster) -> None:
    await full(cluster, 2)
    cluster.share("a")
    await expect_decided(cluster, "a")
    await cluster.quiet(PENDING_SECONDS / 2)
    assert not scale_up_pods(cluster)


@scenario(n1=1)
async def test_a_plain_pod_is_shown_as_a_sharepod_is(cluster: FakeCluster) -> None:
    await full(cluster, 2)
    cluster.plain("a", spec={"tolerations": [{"operator": "Exists"}]})
    (pod,) = await expect_scale_up_pods(cluster, 1)
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    await expect_event(cluster, "a", "GPUMissing")
    cluster.add_node("n2", 1)
    await expect_running(cluster, "a")
    await expect_scale_up_pods(cluster, 0)
    cluster.plain("b", "1")
    await expect_scale_up_pods(cluster, 1)
    cluster.server.remove(PODS, "b", "default")
    await expect_scale_up_pods(cluster, 0)


@scenario(n1=3)
async def test_of_a_gang_those_are_shown_for_which_there_is_no_room(cluster: FakeCluster) -> None:
    await full(cluster, 4)
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "4"}
    for name in ("a", "b", "e"):
        cluster.share(name, "1", labels=labels)
    for name in ("c", "d"):
        cluster.plain(name, "1", labels=labels)
    await cluster.until(lambda: scale_up_pods(cluster))
    await cluster.quiet(PENDING_SECONDS * 2)
    assert len(scale_up_pods(cluster)) == 2, "of four that it needs there is room for two"
    cluster.add_node("n2", 2)
    await cluster.until(lambda: sum(map(cluster.running, "abcde")) == 4)
    await expect_scale_up_pods(cluster, 1)


@pytest.mark.parametrize(
    ("gpu", "count"),
    [
        ({"request": "2.5"}, 3),
        ({"shares": [{"name": "a", "request": "0.6"}, {"name": "b", "request": "0.3"}]}, 2),
        (
            {
                "shares": [
                    {"name": "a", "request": "0.6", "containers": ["main"]},
                    {"name": "b", "request": "0.3", "containers": ["other"]},
                ]
            },
            1,
        ),
        (
            {
                "shares": [
                    {"name": "a", "request": "0.6", "containers": ["main"]},
                    {"name": "b", "request": "0.6", "containers": ["other"]},
                ]
            },
            2,
        ),
    ],
)
def test_different_shares_ask_for_as_many_gpus_as_they_need(gpu: Raw, count: int) -> None:
    containers = [{"name": name, "image": "x"} for name in ("main", "other")]

    async def scenario(cluster: FakeCluster) -> None:
        cluster.configure(autoscaler={"placeholders": 4})
        cluster.start()
        await cluster.run("whole", "3", memory=None)
        cluster.share("a", gpu=gpu, spec={"containers": containers})
        await expect_scale_up_pods(cluster, count)

    run_scenario(scenario, n1=3)


@scenario(n1=1)
async def test_what_cannot_be_read_asks_for_no_node_and_hides_nobody_else(
    cluster: FakeCluster,
) -> None:
    await full(cluster, 4)
    cluster.share("a")
    cluster.plain("b")
    cluster.plain("gone")
    await expect_scale_up_pods(cluster, 3)
    for resource, name in ((SHAREPODS, "a"), (PODS, "b")):
        cluster.server.change(resource, name, "default", _spoil)
    cluster.server.remove(PODS, "gone", "default")
    cluster.share("c")
    await cluster.until(lambda: _requesters(cluster) == [cluster.sharepod("c")["metadata"]["uid"]])


@scenario(n1=1)
async def test_a_requester_whose_author_has_chosen_its_gpu_or_node_asks_for_none(
    cluster: FakeCluster,
) -> None:
    await full(cluster, 4)
    [gpuid] = cluster.vgpus()
    cluster.share("named", id=gpuid)
    cluster.share("placed", spec={"nodeName": "n1"})
    cluster.share("new", id="mine")
    await expect_pending(cluster, "named")
    await expect_pending(cluster, "new")
    await expect_decided(cluster, "placed")
    await cluster.quiet(PENDING_SECONDS * 3)
    assert scale_up_pods(cluster) == []


def _spoil(obj: Raw) -> None:
    if obj["kind"] == "SharePod":
        obj["spec"]["gpu"]["request"] = "many"
    else:
        obj["metadata"]["annotations"]["kubeshare.nthu/request"] = "many"


def _requesters(cluster: FakeCluster) -> list[str]:
    labels = [pod["metadata"]["labels"] for pod in scale_up_pods(cluster)]
    return [each[LABEL_REQUESTER_UID] for each in labels]


KEEPS_N1_FREE = """\
import msgspec

from kubeshare.core.policies.locality.policy import decide as locality


def decide(ledger, demand):
    allowed = ledger.nodes if demand.nodes is None else demand.nodes
    others = frozenset(allowed) - {"n1"}
    return locality(ledger, msgspec.structs.replace(demand, nodes=others))
"""


def test_a_node_is_asked_for_where_the_schedulers_policy_leaves_the_free_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, KEEPS_N1_FREE)

    async def play(cluster: FakeCluster) -> None:
        cluster.policy = "house"
        cluster.configure(autoscaler={"placeholders": 2})
        cluster.start()
        cluster.share("a")
        await expect_scale_up_pods(cluster, 1)
        cluster.add_node("n2", 1)
        await expect_running(cluster, "a")
        await expect_scale_up_pods(cluster, 0)

    run_scenario(play, n1=1)
