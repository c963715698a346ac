"""Gaia's quota cases Q1 to Q7 by the ConfigMap of gpu-admission, through both doors."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.doors import DOORS, begin, create, expect_refused, node_of, place
from fakes.cluster.predicates import fit, schedule
from fakes.cluster.quotas import (
    gaia_limits,
    label_gpus,
    running_micros,
    write_gaia_quotas,
)
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.kube.resources import Raw

M40 = {"quota": {"M40": 2}}
EXCEEDED = "QuotaExceeded"

Case = Callable[[FakeCluster, str], Awaitable[None]]


def through_both_doors(**gpus: int) -> Callable[[Case], Callable[[str], None]]:
    """Decorates a case with the GPUs of each node; of M40 on those whose names begin with m."""

    def decorate(case: Case) -> Callable[[str], None]:
        def run(door: str) -> None:
            async def play(cluster: FakeCluster) -> None:
                await case(cluster, door)

            run_scenario(play, agents=False, **gpus)

        run.__name__, run.__doc__ = case.__name__, case.__doc__
        return pytest.mark.parametrize("door", DOORS)(run)

    return decorate


async def start(cluster: FakeCluster, door: str, **namespaces: Mapping[str, object]) -> None:
    """Starts the programs with these quotas; each node is a pool of its own."""
    for node in cluster.server.all(GPUNODES):
        name = node["metadata"]["name"]
        model = "M40" if name[0] == "m" else "V100"
        cluster.server.change(GPUNODES, name, "", partial(_set_model, model))
    await begin(cluster, door)
    for node in cluster.server.all(GPUNODES):
        label_gpus(cluster, node["metadata"]["name"], pool=node["metadata"]["name"])
    write_gaia_quotas(cluster, **namespaces)
    for namespace in namespaces:
        await cluster.until(partial(gaia_limits, cluster, namespace))
    await cluster.quiet(1)


def _set_model(model: str, node: Raw) -> None:
    for gpu in node["spec"]["devices"]:
        gpu["model"] = model


async def refuse(cluster: FakeCluster, door: str, name: str, cores: int, **words: Any) -> None:
    """A pod is created and waits."""
    create(cluster, door, name, str(cores))
    await expect_refused(cluster, door, name, **words)


@through_both_doors(m1=4)
async def test_q1_as_much_as_the_quota_passes_and_no_more(cluster: FakeCluster, door: str) -> None:
    await start(cluster, door, default=M40)
    await place(cluster, door, "p1", "100")
    await place(cluster, door, "p2", "50")
    words = "GPUQuota gaia is 2 M40 GPUs: 1.5 held, 0.6 asked"
    await refuse(cluster, door, "p3", 60, words=words, reason=EXCEEDED)
    await place(cluster, door, "p4", "50")
    assert running_micros(cluster) == 2_000_000


@through_both_doors(m1=1)
async def test_q2_a_namespace_that_is_not_listed_is_free(cluster: FakeCluster, door: str) -> None:
    await start(cluster, door, other={"quota": {"M40": 0}})
    await place(cluster, door, "p1", "100")


@through_both_doors(m1=1, m2=1)
async def test_q3_the_nodes_of_other_pools_fail(cluster: FakeCluster, door: str) -> None:
    await start(cluster, door, default=M40 | {"pool": ["m2"]})
    await place(cluster, door, "p1", "100")
    assert node_of(cluster, "p1") == "m2"
    await refuse(cluster, door, "p2", 100, words="covers M40 GPUs in pool m1")


@through_both_doors(m1=1)
async def test_q4_a_namespace_that_is_listed_without_models_fails(
    cluster: FakeCluster, door: str
) -> None:
    await start(cluster, door, default={"quota": {}})
    await refuse(cluster, door, "p1", 1, words="is 0 GPUs: 0 held", reason=EXCEEDED)


@through_both_doors(m1=1, v1=2)
async def test_q5_a_group_stays_on_one_model(cluster: FakeCluster, door: str) -> None:
    await start(cluster, door, default={"quota": {"M40": 9, "V100": 9}})
    group = {"kubeshare.nthu/group": "web"}
    await place(cluster, door, "p1", "100", **group)
    first = node_of(cluster, "p1")
    room = {"m1": 0, "v1": 1}[first]
    for number in range(room):
        await place(cluster, door, f"fits-{number}", "100", **group)
        assert node_of(cluster, f"fits-{number}") == first
    create(cluster, door, "p2", "100", **group)
    await expect_refused(cluster, door, "p2")
    await place(cluster, door, "p3", "100")
    assert node_of(cluster, "p3") != first, "another service has the room"


@through_both_doors(m1=4)
async def test_q6_finished_pods_do_not_count(cluster: FakeCluster, door: str) -> None:
    await start(cluster, door, default=M40)
    await place(cluster, door, "p1", "200")
    await refuse(cluster, door, "p2", 100, reason=EXCEEDED)
    cluster.end("p1")
    if door == "extender":
        assert await schedule(cluster, "p2") == ""
    await expect_running(cluster, "p2")


@through_both_doors(m1=4)
async def test_q7_pods_that_are_reserved_and_not_bound_count(
    cluster: FakeCluster, door: str
) -> None:
    await start(cluster, door, default=M40)
    cluster.actors.binds = False
    create(cluster, door, "p1", "200")
    if door == "extender":
        assert (await fit(cluster, "p1"))["NodeNames"] == ["m1"]
    await expect_holders(cluster, ["p1"], ["p1"], [], [])
    await refuse(cluster, door, "p2", 1, reason=EXCEEDED)
    assert running_micros(cluster) == 0
