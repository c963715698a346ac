"""Expectations about a fake cluster: one vocabulary for all tests.

``expect_*`` coroutines wait until the cluster is in a state, at most ``seconds`` of
virtual time, by default ``cluster.deadline``; ``assert_*`` functions check the state as
it is now. A failure prints the SharePods and pods that it is about, with conditions
and events, and all vGPUs with their holders. The model is ``pkg/test/expectations`` of Karpenter.
"""

from collections.abc import Callable
from typing import Any

from fakes.cluster.cluster import FakeCluster
from fakes.cluster.pods import being_deleted, gated
from fakes.cluster.state import (
    condition_of,
    degraded,
    describe,
    evicted,
    held,
    holding,
    is_same_pod,
    is_scheduled,
    is_sharepod,
    owned,
    plain_pods,
    running_plain_pods,
    the_pod,
    verdict,
    vgpu_phases,
)
from kubeshare.api.types.v1 import VGPUS

Raw = dict[str, Any]


class Scheduled:
    """Where a scheduled SharePod is: its vGPU and its node."""

    def __init__(self, gpuid: str, node: str) -> None:
        self.gpuid = gpuid
        self.node = node


# Scheduling


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
        await _wait(
            cluster, lambda: is_scheduled(cluster, name), f"{name} scheduled", name, seconds
        )
    else:
        await _wait(cluster, lambda: verdict(cluster, name), f"{name} decided", name, seconds)
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

    await _wait(cluster, scheduled, f"{names} scheduled", names, seconds)


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
        await _wait(cluster, pending, what, name, seconds)
    else:
        await _wait(cluster, lambda: verdict(cluster, name), f"{name} decided", name, seconds)
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
    await _wait(
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
    await _wait(
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

    await _wait(cluster, decided, f"{names} decided", names, seconds)


# SharePods and pods


async def expect_condition(
    cluster: FakeCluster,
    name: str,
    kind: str,
    reason: str = "",
    *,
    message: str = "",
    status: str = "",
    seconds: float | None = None,
) -> Raw:
    """A SharePod has a condition of this type, with this reason, status and message part.

    ``CONDITION_POD_SCHEDULED`` is a condition of the plain pod of that name.
    """

    def found() -> bool:
        condition = condition_of(cluster, name, kind)
        return (
            bool(condition)
            and reason in {"", condition["reason"]}
            and status in {"", condition["status"]}
            and message in condition.get("message", "")
        )

    await _wait(cluster, found, f"{name} {kind} {reason} {status} {message}", name, seconds)
    return condition_of(cluster, name, kind)


async def expect_event(
    cluster: FakeCluster, name: str, *words: str, seconds: float | None = None
) -> list[str]:
    """Events about an object contain each of the words; without words, there is an event."""

    def found() -> bool:
        events = cluster.events(name)
        return bool(events) and all(any(word in event for event in events) for word in words)

    await _wait(cluster, found, f"event about {name} {words or ''}", name, seconds)
    return cluster.events(name)


async def expect_running(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """The pods of these names run."""
    await _wait(cluster, lambda: cluster.running(*names), f"{names} running", names, seconds)


async def expect_any_running(
    cluster: FakeCluster, *names: str, seconds: float | None = None
) -> list[str]:
    """At least one of these pods runs; returns those that do."""
    await _wait(
        cluster, lambda: any(map(cluster.running, names)), f"one of {names} running", names, seconds
    )
    return [name for name in names if cluster.running(name)]


async def expect_replicas(
    cluster: FakeCluster, count: int, *, without: str = "", seconds: float | None = None
) -> list[str]:
    """So many plain pods run and are not being deleted, ``without`` not among them."""

    def found() -> bool:
        names = running_plain_pods(cluster)
        return len(names) == count and without not in names

    await _wait(cluster, found, f"{count} plain pods running", tuple(plain_pods(cluster)), seconds)
    return running_plain_pods(cluster)


async def expect_plain_pods(
    cluster: FakeCluster, count: int, *, without: str = "", seconds: float | None = None
) -> list[str]:
    """There are so many plain pods, ``without`` not among them; returns their names."""

    def found() -> bool:
        names = plain_pods(cluster)
        return len(names) == count and without not in names

    await _wait(cluster, found, f"{count} plain pods", tuple(plain_pods(cluster)), seconds)
    return plain_pods(cluster)


async def expect_sharepod_phase(
    cluster: FakeCluster, name: str, phase: str, seconds: float | None = None
) -> None:
    """The status of a SharePod has this phase."""
    await _wait(
        cluster,
        lambda: cluster.sharepod(name).get("status", {}).get("phase") == phase,
        f"{name} {phase}",
        name,
        seconds,
    )


async def expect_ready(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """The SharePods have the condition Ready with status True."""
    await _wait(cluster, lambda: all(map(cluster.ready, names)), f"{names} ready", names, seconds)


async def expect_pod(cluster: FakeCluster, name: str, seconds: float | None = None) -> Raw:
    """There is a pod of this name in namespace default."""
    await _wait(cluster, lambda: cluster.pod(name), f"pod {name}", name, seconds)
    return the_pod(cluster, name)


async def expect_no_pod(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """There is no pod of any of these names in namespace default."""

    def absent() -> bool:
        return all(cluster.pod(name) is None for name in names)

    await _wait(cluster, absent, f"no pod {names}", names, seconds)


async def expect_replaced(cluster: FakeCluster, pod: Raw, seconds: float | None = None) -> None:
    """A pod is gone; another pod may have its name."""
    name = pod["metadata"]["name"]
    await _wait(cluster, lambda: not is_same_pod(cluster, pod), f"{name} replaced", name, seconds)


async def expect_terminating(cluster: FakeCluster, name: str, seconds: float | None = None) -> None:
    """A pod is being deleted, or gone."""

    def terminating() -> bool:
        pod = cluster.pod(name)
        return pod is None or being_deleted(pod)

    await _wait(cluster, terminating, f"{name} terminating", name, seconds)


async def expect_ungated(cluster: FakeCluster, name: str, seconds: float | None = None) -> None:
    """A pod has no scheduling gate."""
    await _wait(
        cluster, lambda: not gated(the_pod(cluster, name)), f"{name} ungated", name, seconds
    )


async def expect_bound(
    cluster: FakeCluster, name: str, *, without: str = "", seconds: float | None = None
) -> str:
    """A pod has a node, and not the node ``without``; returns its node."""

    def bound() -> bool:
        pod = cluster.pod(name)
        return pod is not None and pod["spec"].get("nodeName", "") not in {"", without}

    await _wait(cluster, bound, f"{name} bound", name, seconds)
    return str(the_pod(cluster, name)["spec"]["nodeName"])


async def expect_owner(
    cluster: FakeCluster, name: str, owner: Raw, seconds: float | None = None
) -> None:
    """A pod has exactly this owner, by its uid."""

    def owned() -> bool:
        pod = cluster.pod(name)
        owners = pod["metadata"].get("ownerReferences", []) if pod else []
        return [each["uid"] for each in owners] == [owner["metadata"]["uid"]]

    await _wait(cluster, owned, f"{name} of {owner['metadata']['uid']}", name, seconds)


async def expect_deleted(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """There are no SharePods of these names."""

    def deleted() -> bool:
        return not any(is_sharepod(cluster, name) for name in names)

    await _wait(cluster, deleted, f"SharePods {names} deleted", names, seconds)


async def expect_evictions(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """Exactly these pods were asked to leave by the eviction API, each as often as named."""
    wanted = sorted(names)
    await _wait(
        cluster, lambda: sorted(evicted(cluster)) == wanted, f"{names} evicted", names, seconds
    )


# vGPUs, holders and placeholders


async def expect_vgpus(
    cluster: FakeCluster,
    count: int,
    *,
    placeholders: int | None = None,
    seconds: float | None = None,
) -> list[str]:
    """There are so many vGPUs, and so many placeholders if that is given; returns the GPUIDs."""

    def found() -> bool:
        return len(cluster.vgpus()) == count and placeholders in {None, len(cluster.placeholders())}

    await _wait(cluster, found, f"{count} vGPUs, {placeholders} placeholders", (), seconds)
    return list(cluster.vgpus())


async def expect_no_vgpus(cluster: FakeCluster, seconds: float | None = None) -> None:
    """No vGPU is left."""
    await expect_vgpus(cluster, 0, seconds=seconds)


async def expect_vgpu_deleted(
    cluster: FakeCluster, gpuid: str, seconds: float | None = None
) -> None:
    """There is no vGPU of this GPUID."""
    await _wait(cluster, lambda: gpuid not in cluster.vgpus(), f"{gpuid} deleted", (), seconds)


async def expect_phases(cluster: FakeCluster, *phases: str, seconds: float | None = None) -> None:
    """The vGPUs have these phases, in any order."""
    wanted = sorted(phases)
    await _wait(cluster, lambda: vgpu_phases(cluster) == wanted, f"phases {wanted}", (), seconds)


async def expect_phase(
    cluster: FakeCluster, *gpuids: str, phase: str, seconds: float | None = None
) -> None:
    """Each of the vGPUs has this phase."""

    def reached() -> bool:
        return all(cluster.vgpu(each)["status"].get("phase") == phase for each in gpuids)

    await _wait(cluster, reached, f"{gpuids} {phase}", (), seconds)


async def expect_idle_vgpus(cluster: FakeCluster, count: int, seconds: float | None = None) -> None:
    """So many vGPUs are idle; others may be in another phase."""
    await _wait(
        cluster, lambda: vgpu_phases(cluster).count("Idle") == count, f"{count} idle", (), seconds
    )


async def expect_activated(cluster: FakeCluster, seconds: float | None = None) -> None:
    """There are vGPUs, and each has the UUID of its GPU."""

    def activated() -> bool:
        vgpus = cluster.server.all(VGPUS)
        return bool(vgpus) and all(vgpu["spec"].get("uuid") for vgpu in vgpus)

    await _wait(cluster, activated, "vGPUs activated", (), seconds)


async def expect_degraded(
    cluster: FakeCluster, reason: str = "", seconds: float | None = None
) -> Raw:
    """The only vGPU has the condition Degraded, with this reason (also ``Healthy``)."""

    def found() -> bool:
        condition = degraded(cluster)
        return bool(condition) and reason in {"", condition["reason"]}

    await _wait(cluster, found, f"vGPU Degraded {reason}", (), seconds)
    return degraded(cluster)


async def expect_owned(
    cluster: FakeCluster, node: str, reason: str = "Owned", seconds: float | None = None
) -> Raw:
    """The GPUNode of a node has the condition Owned with this reason."""
    await _wait(
        cluster,
        lambda: owned(cluster, node).get("reason") == reason,
        f"{node} Owned {reason}",
        (),
        seconds,
    )
    return owned(cluster, node)


async def expect_holders(
    cluster: FakeCluster, *vgpus: list[str], seconds: float | None = None
) -> None:
    """There is one vGPU for each argument, with exactly these holders."""
    wanted = sorted(vgpus)
    await _wait(cluster, lambda: held(cluster) == wanted, f"holders {wanted}", (), seconds)


async def expect_holding(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """Exactly these hold shares, of whichever vGPUs, each as many as it is named."""
    wanted = sorted(names)
    await _wait(cluster, lambda: holding(cluster) == wanted, f"holders {wanted}", names, seconds)


async def expect_holder_count(
    cluster: FakeCluster, count: int, seconds: float | None = None
) -> None:
    """All vGPUs together have so many holders."""
    await _wait(cluster, lambda: len(holding(cluster)) == count, f"{count} holders", (), seconds)


async def expect_shared_gpu(
    cluster: FakeCluster, *names: str, seconds: float | None = None
) -> None:
    """Exactly these are the holders of one vGPU."""
    await _wait(cluster, lambda: cluster.shares_gpu(*names), f"{names} on one vGPU", names, seconds)


async def expect_released(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """None of these holds a share; without names, nobody does."""

    def released() -> bool:
        found = holding(cluster)
        return not set(found).intersection(names) if names else not found

    await _wait(cluster, released, f"shares of {names or 'all'} released", names, seconds)


async def expect_placeholders(
    cluster: FakeCluster, count: int, seconds: float | None = None
) -> list[str]:
    """There are so many placeholder pods; returns their names."""
    await _wait(
        cluster, lambda: len(cluster.placeholders()) == count, f"{count} placeholders", (), seconds
    )
    return cluster.placeholders()


async def expect_cleaned_up(cluster: FakeCluster, seconds: float | None = None) -> None:
    """Neither a vGPU nor a placeholder is left."""

    def clean() -> bool:
        return not cluster.vgpus() and not cluster.placeholders()

    await _wait(cluster, clean, "no vGPU and no placeholder", (), seconds)


async def _wait(
    cluster: FakeCluster,
    condition: Callable[[], object],
    expected: str,
    names: str | tuple[str, ...],
    seconds: float | None,
) -> None:
    try:
        await cluster.until(condition, seconds)
    except AssertionError as error:
        state = describe(cluster, *((names,) if isinstance(names, str) else names))
        raise AssertionError(f"expected {expected.strip()}: {error}\n{state}") from None
