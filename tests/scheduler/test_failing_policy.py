"""A policy of another package that fails: its demands wait, with its name, until an event."""

from pathlib import Path

import pytest

from expectations.pods import expect_event, expect_running
from expectations.scheduling import expect_pending
from fakes.cluster import FakeCluster, run_scenario
from fakes.policy_package import FULL, HEAD, RAISING, WHO, install_policy
from scheduler.gang.gangs import gang, labels

SENSITIVE = f"""{HEAD}    if len(ledger.nodes) < 2:
        raise LookupError("no second node")
    return locality(ledger, demand)
"""
"""Fails until there is a second node."""
SHY = f"""{HEAD}    held = [each.name for gpu in ledger.devices.values() for each in gpu.holders]
    if "low" in held:
        raise LookupError("somebody is there")
    return locality(ledger, demand)
"""
"""Fails while somebody else has a GPU."""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (RAISING, f"{WHO} raised ZeroDivisionError: oh (line 6 of house_policy)"),
        (f"{HEAD}    return None\n", f"{WHO} answered with NoneType, which is no Decision"),
        # Its words differ each time, as those with an address in memory do.
        (
            f"import itertools\nCALLS = itertools.count()\n{HEAD}    raise KeyError(next(CALLS))\n",
            WHO,
        ),
    ],
)
def test_its_demands_wait_and_say_what_it_did(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, source)

    async def play(cluster: FakeCluster) -> None:
        cluster.policy = "house"
        cluster.start()
        cluster.share("a", "0.5")
        cluster.plain("b", "0.5")
        for name in "ab":
            await expect_pending(cluster, name, words, reason="PolicyFailed")
            await expect_event(cluster, name, "PolicyFailed", words)
        await cluster.quiet()
        failed, writes = cluster.decisions()["failed"], cluster.server.writes
        assert failed >= 2
        # Nothing is decided or written while nothing changes, but for the slow resync.
        await cluster.quiet(60)
        assert cluster.decisions()["failed"] <= failed + 2
        assert cluster.server.writes == writes
        assert not cluster.vgpus()

    run_scenario(play, n1=1)


def test_what_does_not_fit_waits_and_what_fits_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, FULL)

    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.run("a", "0.6")
        await cluster.kill("scheduler")
        cluster.policy = "house"
        cluster.start("scheduler")
        cluster.share("b", "0.6")
        await expect_pending(cluster, "b", f"{WHO} chose n1/", reason="PolicyFailed")
        message = cluster.condition("b", "Scheduled")["message"]
        assert "does not fit: compute 0.4 left, 0.6 asked" in message
        await cluster.run("c", "0.4")
        assert list(map(sorted, cluster.vgpus().values())) == [["a", "c"]]

    run_scenario(play, n1=2)


def test_it_is_asked_again_when_the_cluster_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, SENSITIVE)

    async def play(cluster: FakeCluster) -> None:
        cluster.policy = "house"
        cluster.start()
        cluster.share("a", "0.5")
        await expect_pending(cluster, "a", "LookupError: no second node", reason="PolicyFailed")
        cluster.add_node("n2", 1)
        await expect_running(cluster, "a")

    run_scenario(play, n1=1)


def test_a_gang_counts_once_for_each_time_that_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, RAISING)

    async def play(cluster: FakeCluster) -> None:
        cluster.policy = "house"
        cluster.start()
        gang(cluster, *"abcdefgh", request="0.1")
        for name in "abcdefgh":
            await expect_pending(cluster, name, WHO, reason="PolicyFailed")
        await cluster.quiet()
        assert 1 <= cluster.decisions()["failed"] < 8
        # A member has news: the gang is decided anew.
        failed = cluster.decisions()["failed"]
        cluster.add_node("n2", 1)
        await cluster.until(lambda: cluster.decisions()["failed"] > failed)
        await cluster.quiet()
        assert not cluster.vgpus()

    run_scenario(play, n1=1)


@pytest.mark.parametrize("members", ["a", "ab"])
def test_nobody_is_evicted_for_it_though_it_would_decide_then(
    members: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, SHY)

    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        await cluster.run("low", "0.9", annotations={"kubeshare.nthu/preemptible": "true"})
        await cluster.kill("scheduler")
        cluster.policy = "house"
        cluster.start("scheduler")
        terms = labels(2) if len(members) > 1 else {}
        for name in members:
            cluster.share(name, "0.5", labels={"sharedgpu/priority": "5", **terms})
        for name in members:
            await expect_pending(cluster, name, f"{WHO} raised LookupError", reason="PolicyFailed")
        await cluster.quiet()
        assert cluster.running("low")
        cluster.delete("low")
        await expect_running(cluster, *members)

    run_scenario(play, n1=1)
