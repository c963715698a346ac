"""Expectations about the scheduler's decisions."""

from typing import Any

from expectations.pods import expect_event
from expectations.waiting import wait
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.state import describe, is_scheduled, is_sharepod, verdict

Raw = dict[str, Any]


class Scheduled:
    """Where a scheduled SharePod is: its vGPU and its node."""

    def __init__(self, gpuid: str, node: str) -> None:
        self.gpuid = gpuid
        self.node = node


async def expect_scheduled(
    cluster: FakeCluster,
    name: str,
    *,
    gpuid: str = "",
    node: str = "",
    seconds: float | None = None,
) -> Scheduled:
    """A SharePod is scheduled: to this vGPU and node, where they are given.

    The first decision counts: a SharePod that gets its first verdict now must not be
    pending. One that is pending already may become scheduled until the deadline.
    """
    if verdict(cluster, name):
        await wait(cluster, lambda: is_scheduled(cluster, name), f"{name} scheduled", name, seconds)
    else:
        await wait(cluster, lambda: verdict(cluster, name), f"{name} decided", name, seconds)
    return assert_scheduled(cluster, name, gpuid=gpuid, node=node)


def assert_scheduled(
    cluster: FakeCluster, name: str, *, gpuid: str = "", node: str = ""
) -> Scheduled:
    """Now, a SharePod has a vGPU and a node, and is a holder of that vGPU."""
    spec = cluster.sharepod(name)["spec"]
    assert spec.get("nodeName"), f"{name} has no node\n{describe(cluster, name)}"
    found = Scheduled(spec["gpu"]["id"], spec["nodeName"])
    assert name in cluster.vgpus()[found.gpuid], f"{name} is no holder\n{describe(cluster, name)}"
    assert gpuid in {"", found.gpuid}, f"{name} has vGPU {found.gpuid}, not {gpuid}"
    assert node in {"", found.node}, f"{name} is on {found.node}, not on {node}"
    return found


async def expect_all_scheduled(
    cluster: FakeCluster, *names: str, seconds: float | None = None
) -> None:
    """All of these SharePods are scheduled; they may be pending before."""

    def scheduled() -> bool:
        return all(is_scheduled(cluster, name) for name in names)

    await wait(cluster, scheduled, f"{names} scheduled", names, seconds)


async def expect_pending(
    cluster: FakeCluster, name: str, *words: str, reason: str = "", seconds: float | None = None
) -> None:
    """A SharePod or a plain pod is not scheduled; condition and events contain the words.

    The first decision counts, as for :func:`expect_scheduled`: where there is a verdict
    already, it may change to this one until the deadline. With words and no ``reason``
    the reason is ``NoRoom``.
    """
    reason = reason or ("NoRoom" if words else "")
    what = f"{name} pending {reason} {words or ''}"

    def pending() -> bool:
        found = verdict(cluster, name)
        return (
            found.get("status") == "False"
            and reason in {"", found["reason"]}
            and all(word in found["message"] for word in words)
        )

    if verdict(cluster, name):
        await wait(cluster, pending, what, name, seconds)
    else:
        await wait(cluster, lambda: verdict(cluster, name), f"{name} decided", name, seconds)
        assert pending(), f"expected {what}\n{describe(cluster, name)}"
    if words:
        await expect_event(cluster, name, *words, seconds=seconds)
    assert_pending(cluster, name, *words, reason=reason)


def assert_pending(cluster: FakeCluster, name: str, *words: str, reason: str = "") -> None:
    """Now, it is not scheduled; condition and events contain the words."""
    found = verdict(cluster, name)
    state = describe(cluster, name)
    if is_sharepod(cluster, name):
        assert not cluster.sharepod(name)["spec"].get("nodeName"), f"{name} has a node\n{state}"
    assert found.get("status") == "False", f"{name} is not pending\n{state}"
    reason = reason or ("NoRoom" if words else "")
    assert reason in {"", found["reason"]}, f"{name} is not pending for {reason}\n{state}"
    for word in words:
        assert word in found["message"], f"{word!r} is not in the condition of {name}\n{state}"
        reported = any(word in event for event in cluster.events(name))
        assert reported, f"{word!r} is in no event of {name}\n{state}"


async def expect_on_node(
    cluster: FakeCluster, name: str, node: str, seconds: float | None = None
) -> None:
    """A SharePod has this node in its spec, with ``""`` none."""
    await wait(
        cluster,
        lambda: cluster.sharepod(name)["spec"].get("nodeName", "") == node,
        f"{name} on {node or 'no node'}",
        name,
        seconds,
    )


async def expect_attempt(
    cluster: FakeCluster, name: str, attempt: int, seconds: float | None = None
) -> None:
    """The decision about a SharePod is the one of this number."""
    await wait(
        cluster,
        lambda: cluster.sharepod(name)["spec"]["gpu"]["attempt"] == attempt,
        f"attempt {attempt} of {name}",
        name,
        seconds,
    )


async def expect_decided(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """The scheduler has decided about each of these, whatever it decided."""

    def decided() -> bool:
        return all(verdict(cluster, name) for name in names)

    await wait(cluster, decided, f"{names} decided", names, seconds)
