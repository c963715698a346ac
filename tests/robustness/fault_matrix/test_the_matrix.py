"""The matrix itself can fail: at planted violations, and where a trouble has no effect."""

from collections.abc import Callable

import pytest
import structlog

from fakes.cluster import FakeCluster, run_scenario
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import Raw
from kubeshare.simulator.control import FakeApiServer, Fault
from robustness.fault_matrix.lives import LIVES, Life
from robustness.fault_matrix.matrix import Point, Tally, log_nothing, play, run_point
from robustness.fault_matrix.troubles import TROUBLES, Trouble

WRITE = 9
"""A write in the middle of the life ``alone``, after which programs still have work to do."""


def planted(plant: Callable[[FakeCluster], object]) -> list[str]:
    """The violations after something was planted beside a SharePod that runs."""
    found: list[str] = []

    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.run("a", "0.6")
        assert cluster.invariants.violations == []
        plant(cluster)
        found.extend(cluster.invariants.violations)

    with pytest.raises(AssertionError):
        run_scenario(scenario, n1=1)
    return found


def change_vgpu(cluster: FakeCluster, mutate: Callable[[Raw], object]) -> None:
    (gpuid,) = cluster.vgpus()
    cluster.server.change(VGPUS, gpuid, "", mutate)


def add_holder(vgpu: Raw, **changed: object) -> None:
    (holder,) = vgpu["status"]["holders"]
    vgpu["status"]["holders"].append(holder | {"demand": "other", "requestMicros": 0} | changed)


def test_an_exception_in_a_log_that_nobody_reads_is_a_violation() -> None:
    log_nothing()
    try:
        log = structlog.get_logger()
        found = planted(lambda _: log.error("reconcile failed", exc_info=ValueError("a bug")))
    finally:
        structlog.reset_defaults()
    assert found == ["reconcile failed: ValueError('a bug')"]


def test_a_gpu_whose_time_is_promised_twice_is_a_violation() -> None:
    found = planted(lambda w: change_vgpu(w, lambda v: add_holder(v, requestMicros=600_000)))
    assert "the holders' requests would be more than one GPU" in found


def test_a_gpu_whose_memory_is_promised_twice_is_a_violation() -> None:
    found = planted(lambda w: change_vgpu(w, lambda v: add_holder(v, memoryBytes=16 << 30)))
    assert "the holders' memory would be more than the GPU has" in found


def test_a_demand_that_holds_two_shares_is_a_violation() -> None:
    def plant(cluster: FakeCluster) -> None:
        (vgpu,) = cluster.server.all(VGPUS)
        cluster.server.seed(VGPUS, vgpu | {"metadata": {"name": "other"}})

    assert any("holds 2 shares" in line for line in planted(plant))


def test_a_node_that_gives_a_gpu_twice_is_a_violation() -> None:
    def plant(cluster: FakeCluster) -> None:
        cluster.native_pod("whole", nodeName="n1")

    assert "n1 gave 2 GPUs" in planted(plant)


def test_a_reason_that_is_not_in_the_list_is_a_violation() -> None:
    def plant(cluster: FakeCluster) -> None:
        def mutate(sharepod: Raw) -> None:
            sharepod["status"]["conditions"][0]["reason"] = "NoSuchReason"

        cluster.server.change(SHAREPODS, "a", "default", mutate)

    assert "NoSuchReason is no reason of a condition" in planted(plant)


@pytest.mark.slow
def test_a_life_that_overcommits_leaves_things_or_gets_stuck_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def overcommit(cluster: FakeCluster) -> None:
        await cluster.run("a", "0.6")
        change_vgpu(cluster, lambda vgpu: add_holder(vgpu, requestMicros=600_000))

    async def leak(cluster: FakeCluster) -> None:
        await cluster.run("a")
        cluster.native_pod("left")

    async def stick(cluster: FakeCluster) -> None:
        await cluster.until(lambda: False, 1)

    for name, story in {"overcommit": overcommit, "leak": leak, "stick": stick}.items():
        monkeypatch.setitem(LIVES, name, Life(story, {"n1": 2}))
        tally = Tally()
        play(Point(name, "409", 1), tally)
        assert tally.wrong != []
        assert tally.converged == 0
        if name == "overcommit":
            assert "more than one GPU" in tally.overcommitted[0]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_shows_its_effect(trouble: str) -> None:
    outcome, strike = run_point(Point("alone", trouble, WRITE))
    assert strike.request is not None
    assert TROUBLES[trouble].shows(outcome.cluster, strike)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_that_does_nothing_is_wrong(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Trouble(lambda _cluster: Fault.preceded_by(lambda: None), TROUBLES[trouble].shows)
    monkeypatch.setitem(TROUBLES, trouble, nothing)
    tally = Tally()
    play(Point("alone", trouble, WRITE), tally)
    assert tally.struck == {trouble: 1}
    assert tally.unseen == [trouble]


def test_a_trouble_that_never_strikes_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeApiServer, "inject_at_write", lambda *_: None)
    tally = Tally()
    point = Point("alone", "409", WRITE)
    play(point, tally)
    assert tally.wrong == [f"{point}: it never struck"]


def test_a_matrix_without_points_is_wrong() -> None:
    assert Tally().wrong == ["no point was played"]
