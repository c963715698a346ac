"""What a pod used over time: exact between accounts, and bounded."""

from typing import Any

import pytest

from fakes.web import served, small_cluster
from fakes.web.cluster import ago
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.web.use_history import Account, UseHistory

MINUTE = 60 * 10**9


def account(minute: int, used: int, grant: str = "g") -> Account:
    """An account at a minute of a pod that has used so many minutes of a GPU."""
    return Account("p", grant, "at 0", f"at {minute}", used * MINUTE, minute * MINUTE)


def spans(history: UseHistory, *accounts: Account, pod: str = "p") -> list[tuple[str, str, float]]:
    found = [history.spans(pod, each) for each in accounts][-1]
    return [(each.start, each.end, each.micros / 1_000_000) for each in found]


def test_each_account_adds_what_was_used_since_the_one_before() -> None:
    found = spans(
        UseHistory(), account(100, 50), account(110, 59), account(110, 59), account(170, 59)
    )
    assert found == [("at 0", "at 100", 0.5), ("at 100", "at 110", 0.9), ("at 110", "at 170", 0)]


def test_a_pod_that_has_another_grant_begins_anew() -> None:
    history = UseHistory()
    assert len(spans(history, account(10, 5), account(20, 10))) == 2
    assert spans(history, account(30, 3, grant="other")) == [("at 0", "at 30", 0.1)]


def test_an_account_of_before_changes_nothing() -> None:
    history = UseHistory()
    known = spans(history, account(10, 5), account(20, 10))
    assert spans(history, account(10, 5)) == known


def test_pods_and_spans_are_bounded_however_long_somebody_looks() -> None:
    history = UseHistory(most_pods=3, most_spans=4)
    for minute in range(1, 24 * 60):
        for pod in "abcde":
            assert len(history.spans(pod, account(minute, minute // 2))) <= 4
            assert len(history) <= 3
    history = UseHistory(most_pods=3, most_spans=4)
    for minute in range(1, 24 * 60):
        found = spans(history, account(minute, minute))
    assert [start for start, _, _ in found] == [f"at {minute}" for minute in range(1435, 1439)]


def test_the_page_has_it_of_the_pods_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeshare.web.lookups._USAGE_SECONDS", 0)

    def go_on(usage: dict[str, Any]) -> None:
        usage["status"] |= {"observedAt": ago(minutes=1), "durationNs": 96 * MINUTE}
        usage["status"]["shares"][0]["usedNs"] = 61 * MINUTE

    with served(small_cluster()) as page:
        pod = "/api/pods/SharePod/research/train-bert"
        [first] = page.read(pod)["used"]["spans"]
        assert first["micros"] == 52 * 1_000_000 // 86
        page.do(page.api.change, SHARE_USAGES, "g", "research", go_on)
        before, last = page.read(pod)["used"]["spans"]
        assert before == first
        assert (last["start"], last["micros"]) == (first["end"], 900_000)
        [share] = [
            share
            for gpu in page.read("/api/nodes/gpu-a")["gpus"]
            for share in gpu["shares"]
            if share["name"] == "train-bert"
        ]
        assert share["used"]["spans"] == [before, last]
