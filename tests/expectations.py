"""Expectations about a fake cluster: one vocabulary for all tests.

``expect_*`` coroutines wait until the cluster is in a state, at most ``seconds`` of
virtual time, by default ``world.deadline``; ``assert_*`` functions check the state as
it is now. A failure prints the SharePods and pods that it is about, with conditions
and events, and all vGPUs with their holders. The model is ``pkg/test/expectations`` of Karpenter.
"""

from collections.abc import Callable
from typing import Any

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
from fakes.cluster.world import World
from kubeshare.api.types.v1 import VGPUS

Raw = dict[str, Any]


class Scheduled:
    """Where a scheduled SharePod is: its vGPU and its node."""

    def __init__(self, gpuid: str, node: str) -> None:
        self.gpuid = gpuid
        self.node = node


# Scheduling


async def expect_scheduled(
    world: World, name: str, *, gpuid: str = "", node: str = "", seconds: float | None = None
) -> Scheduled:
    """A SharePod is scheduled: to this vGPU and node, where they are given.

    The first decision counts: a SharePod that gets its first verdict now must not be
    pending. One that is pending already may become scheduled until the deadline.
    """
    if verdict(world, name):
        await _wait(world, lambda: is_scheduled(world, name), f"{name} scheduled", name, seconds)
    else:
        await _wait(world, lambda: verdict(world, name), f"{name} decided", name, seconds)
    return assert_scheduled(world, name, gpuid=gpuid, node=node)


def assert_scheduled(world: World, name: str, *, gpuid: str = "", node: str = "") -> Scheduled:
    """Now, a SharePod has a vGPU and a node, and is a holder of that vGPU."""
    spec = world.sharepod(name)["spec"]
    assert spec.get("nodeName"), f"{name} has no node\n{describe(world, name)}"
    found = Scheduled(spec["gpu"]["id"], spec["nodeName"])
    assert name in world.vgpus()[found.gpuid], f"{name} is no holder\n{describe(world, name)}"
    assert gpuid in {"", found.gpuid}, f"{name} has vGPU {found.gpuid}, not {gpuid}"
    assert node in {"", found.node}, f"{name} is on {found.node}, not on {node}"
    return found


async def expect_all_scheduled(world: World, *names: str, seconds: float | None = None) -> None:
    """All of these SharePods are scheduled; they may be pending before."""

    def scheduled() -> bool:
        return all(is_scheduled(world, name) for name in names)

    await _wait(world, scheduled, f"{names} scheduled", names, seconds)


async def expect_pending(
    world: World, name: str, *words: str, reason: str = "", seconds: float | None = None
) -> None:
    """A SharePod or a plain pod is not scheduled; condition and events contain the words.

    The first decision counts, as for :func:`expect_scheduled`: where there is a verdict
    already, it may change to this one until the deadline. With words and no ``reason``
    the reason is ``NoRoom``.
    """
    reason = reason or ("NoRoom" if words else "")
    what = f"{name} pending {reason} {words or ''}"

    def pending() -> bool:
        found = verdict(world, name)
        return (
            found.get("status") == "False"
            and reason in {"", found["reason"]}
            and all(word in found["message"] for word in words)
        )

    if verdict(world, name):
        await _wait(world, pending, what, name, seconds)
    else:
        await _wait(world, lambda: verdict(world, name), f"{name} decided", name, seconds)
        assert pending(), f"expected {what}\n{describe(world, name)}"
    if words:
        await expect_event(world, name, *words, seconds=seconds)
    assert_pending(world, name, *words, reason=reason)


def assert_pending(world: World, name: str, *words: str, reason: str = "") -> None:
    """Now, it is not scheduled; condition and events contain the words."""
    found = verdict(world, name)
    state = describe(world, name)
    if is_sharepod(world, name):
        assert not world.sharepod(name)["spec"].get("nodeName"), f"{name} has a node\n{state}"
    assert found.get("status") == "False", f"{name} is not pending\n{state}"
    reason = reason or ("NoRoom" if words else "")
    assert reason in {"", found["reason"]}, f"{name} is not pending for {reason}\n{state}"
    for word in words:
        assert word in found["message"], f"{word!r} is not in the condition of {name}\n{state}"
        reported = any(word in event for event in world.events(name))
        assert reported, f"{word!r} is in no event of {name}\n{state}"


async def expect_on_node(world: World, name: str, node: str, seconds: float | None = None) -> None:
    """A SharePod has this node in its spec, with ``""`` none."""
    await _wait(
        world,
        lambda: world.sharepod(name)["spec"].get("nodeName", "") == node,
        f"{name} on {node or 'no node'}",
        name,
        seconds,
    )


async def expect_attempt(
    world: World, name: str, attempt: int, seconds: float | None = None
) -> None:
    """The decision about a SharePod is the one of this number."""
    await _wait(
        world,
        lambda: world.sharepod(name)["spec"]["gpu"]["attempt"] == attempt,
        f"attempt {attempt} of {name}",
        name,
        seconds,
    )


async def expect_decided(world: World, *names: str, seconds: float | None = None) -> None:
    """The scheduler has decided about each of these, whatever it decided."""

    def decided() -> bool:
        return all(verdict(world, name) for name in names)

    await _wait(world, decided, f"{names} decided", names, seconds)


# SharePods and pods


async def expect_condition(
    world: World,
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
        condition = condition_of(world, name, kind)
        return (
            bool(condition)
            and reason in {"", condition["reason"]}
            and status in {"", condition["status"]}
            and message in condition.get("message", "")
        )

    await _wait(world, found, f"{name} {kind} {reason} {status} {message}", name, seconds)
    return condition_of(world, name, kind)


async def expect_event(
    world: World, name: str, *words: str, seconds: float | None = None
) -> list[str]:
    """Events about an object contain each of the words; without words, there is an event."""

    def found() -> bool:
        events = world.events(name)
        return bool(events) and all(any(word in event for event in events) for word in words)

    await _wait(world, found, f"event about {name} {words or ''}", name, seconds)
    return world.events(name)


async def expect_running(world: World, *names: str, seconds: float | None = None) -> None:
    """The pods of these names run."""
    await _wait(world, lambda: world.running(*names), f"{names} running", names, seconds)


async def expect_any_running(world: World, *names: str, seconds: float | None = None) -> list[str]:
    """At least one of these pods runs; returns those that do."""
    await _wait(
        world, lambda: any(map(world.running, names)), f"one of {names} running", names, seconds
    )
    return [name for name in names if world.running(name)]


async def expect_replicas(
    world: World, count: int, *, without: str = "", seconds: float | None = None
) -> list[str]:
    """So many plain pods run and are not being deleted, ``without`` not among them."""

    def found() -> bool:
        names = running_plain_pods(world)
        return len(names) == count and without not in names

    await _wait(world, found, f"{count} plain pods running", tuple(plain_pods(world)), seconds)
    return running_plain_pods(world)


async def expect_plain_pods(
    world: World, count: int, *, without: str = "", seconds: float | None = None
) -> list[str]:
    """There are so many plain pods, ``without`` not among them; returns their names."""

    def found() -> bool:
        names = plain_pods(world)
        return len(names) == count and without not in names

    await _wait(world, found, f"{count} plain pods", tuple(plain_pods(world)), seconds)
    return plain_pods(world)


async def expect_sharepod_phase(
    world: World, name: str, phase: str, seconds: float | None = None
) -> None:
    """The status of a SharePod has this phase."""
    await _wait(
        world,
        lambda: world.sharepod(name).get("status", {}).get("phase") == phase,
        f"{name} {phase}",
        name,
        seconds,
    )


async def expect_ready(world: World, *names: str, seconds: float | None = None) -> None:
    """The SharePods have the condition Ready with status True."""
    await _wait(world, lambda: all(map(world.ready, names)), f"{names} ready", names, seconds)


async def expect_pod(world: World, name: str, seconds: float | None = None) -> Raw:
    """There is a pod of this name in namespace default."""
    await _wait(world, lambda: world.pod(name), f"pod {name}", name, seconds)
    return the_pod(world, name)


async def expect_no_pod(world: World, *names: str, seconds: float | None = None) -> None:
    """There is no pod of any of these names in namespace default."""

    def absent() -> bool:
        return all(world.pod(name) is None for name in names)

    await _wait(world, absent, f"no pod {names}", names, seconds)


async def expect_replaced(world: World, pod: Raw, seconds: float | None = None) -> None:
    """A pod is gone; another pod may have its name."""
    name = pod["metadata"]["name"]
    await _wait(world, lambda: not is_same_pod(world, pod), f"{name} replaced", name, seconds)


async def expect_terminating(world: World, name: str, seconds: float | None = None) -> None:
    """A pod is being deleted, or gone."""

    def terminating() -> bool:
        pod = world.pod(name)
        return pod is None or being_deleted(pod)

    await _wait(world, terminating, f"{name} terminating", name, seconds)


async def expect_ungated(world: World, name: str, seconds: float | None = None) -> None:
    """A pod has no scheduling gate."""
    await _wait(world, lambda: not gated(the_pod(world, name)), f"{name} ungated", name, seconds)


async def expect_bound(
    world: World, name: str, *, without: str = "", seconds: float | None = None
) -> str:
    """A pod has a node, and not the node ``without``; returns its node."""

    def bound() -> bool:
        pod = world.pod(name)
        return pod is not None and pod["spec"].get("nodeName", "") not in {"", without}

    await _wait(world, bound, f"{name} bound", name, seconds)
    return str(the_pod(world, name)["spec"]["nodeName"])


async def expect_owner(world: World, name: str, owner: Raw, seconds: float | None = None) -> None:
    """A pod has exactly this owner, by its uid."""

    def owned() -> bool:
        pod = world.pod(name)
        owners = pod["metadata"].get("ownerReferences", []) if pod else []
        return [each["uid"] for each in owners] == [owner["metadata"]["uid"]]

    await _wait(world, owned, f"{name} of {owner['metadata']['uid']}", name, seconds)


async def expect_deleted(world: World, *names: str, seconds: float | None = None) -> None:
    """There are no SharePods of these names."""

    def deleted() -> bool:
        return not any(is_sharepod(world, name) for name in names)

    await _wait(world, deleted, f"SharePods {names} deleted", names, seconds)


async def expect_evictions(world: World, *names: str, seconds: float | None = None) -> None:
    """Exactly these pods were asked to leave by the eviction API, each as often as named."""
    wanted = sorted(names)
    await _wait(world, lambda: sorted(evicted(world)) == wanted, f"{names} evicted", names, seconds)


# vGPUs, holders and placeholders


async def expect_vgpus(
    world: World, count: int, *, placeholders: int | None = None, seconds: float | None = None
) -> list[str]:
    """There are so many vGPUs, and so many placeholders if that is given; returns the GPUIDs."""

    def found() -> bool:
        return len(world.vgpus()) == count and placeholders in {None, len(world.placeholders())}

    await _wait(world, found, f"{count} vGPUs, {placeholders} placeholders", (), seconds)
    return list(world.vgpus())


async def expect_no_vgpus(world: World, seconds: float | None = None) -> None:
    """No vGPU is left."""
    await expect_vgpus(world, 0, seconds=seconds)


async def expect_vgpu_deleted(world: World, gpuid: str, seconds: float | None = None) -> None:
    """There is no vGPU of this GPUID."""
    await _wait(world, lambda: gpuid not in world.vgpus(), f"{gpuid} deleted", (), seconds)


async def expect_phases(world: World, *phases: str, seconds: float | None = None) -> None:
    """The vGPUs have these phases, in any order."""
    wanted = sorted(phases)
    await _wait(world, lambda: vgpu_phases(world) == wanted, f"phases {wanted}", (), seconds)


async def expect_phase(
    world: World, *gpuids: str, phase: str, seconds: float | None = None
) -> None:
    """Each of the vGPUs has this phase."""

    def reached() -> bool:
        return all(world.vgpu(each)["status"].get("phase") == phase for each in gpuids)

    await _wait(world, reached, f"{gpuids} {phase}", (), seconds)


async def expect_idle_vgpus(world: World, count: int, seconds: float | None = None) -> None:
    """So many vGPUs are idle; others may be in another phase."""
    await _wait(
        world, lambda: vgpu_phases(world).count("Idle") == count, f"{count} idle", (), seconds
    )


async def expect_activated(world: World, seconds: float | None = None) -> None:
    """There are vGPUs, and each has the UUID of its GPU."""

    def activated() -> bool:
        vgpus = world.server.all(VGPUS)
        return bool(vgpus) and all(vgpu["spec"].get("uuid") for vgpu in vgpus)

    await _wait(world, activated, "vGPUs activated", (), seconds)


async def expect_degraded(world: World, reason: str = "", seconds: float | None = None) -> Raw:
    """The only vGPU has the condition Degraded, with this reason (also ``Healthy``)."""

    def found() -> bool:
        condition = degraded(world)
        return bool(condition) and reason in {"", condition["reason"]}

    await _wait(world, found, f"vGPU Degraded {reason}", (), seconds)
    return degraded(world)


async def expect_owned(
    world: World, node: str, reason: str = "Owned", seconds: float | None = None
) -> Raw:
    """The GPUNode of a node has the condition Owned with this reason."""
    await _wait(
        world,
        lambda: owned(world, node).get("reason") == reason,
        f"{node} Owned {reason}",
        (),
        seconds,
    )
    return owned(world, node)


async def expect_holders(world: World, *vgpus: list[str], seconds: float | None = None) -> None:
    """There is one vGPU for each argument, with exactly these holders."""
    wanted = sorted(vgpus)
    await _wait(world, lambda: held(world) == wanted, f"holders {wanted}", (), seconds)


async def expect_holding(world: World, *names: str, seconds: float | None = None) -> None:
    """Exactly these hold shares, of whichever vGPUs, each as many as it is named."""
    wanted = sorted(names)
    await _wait(world, lambda: holding(world) == wanted, f"holders {wanted}", names, seconds)


async def expect_holder_count(world: World, count: int, seconds: float | None = None) -> None:
    """All vGPUs together have so many holders."""
    await _wait(world, lambda: len(holding(world)) == count, f"{count} holders", (), seconds)


async def expect_shared_gpu(world: World, *names: str, seconds: float | None = None) -> None:
    """Exactly these are the holders of one vGPU."""
    await _wait(world, lambda: world.shares_gpu(*names), f"{names} on one vGPU", names, seconds)


async def expect_released(world: World, *names: str, seconds: float | None = None) -> None:
    """None of these holds a share; without names, nobody does."""

    def released() -> bool:
        found = holding(world)
        return not set(found).intersection(names) if names else not found

    await _wait(world, released, f"shares of {names or 'all'} released", names, seconds)


async def expect_placeholders(world: World, count: int, seconds: float | None = None) -> list[str]:
    """There are so many placeholder pods; returns their names."""
    await _wait(
        world, lambda: len(world.placeholders()) == count, f"{count} placeholders", (), seconds
    )
    return world.placeholders()


async def expect_cleaned_up(world: World, seconds: float | None = None) -> None:
    """Neither a vGPU nor a placeholder is left."""

    def clean() -> bool:
        return not world.vgpus() and not world.placeholders()

    await _wait(world, clean, "no vGPU and no placeholder", (), seconds)


async def _wait(
    world: World,
    condition: Callable[[], object],
    expected: str,
    names: str | tuple[str, ...],
    seconds: float | None,
) -> None:
    try:
        await world.until(condition, seconds)
    except AssertionError as error:
        state = describe(world, *((names,) if isinstance(names, str) else names))
        raise AssertionError(f"expected {expected.strip()}: {error}\n{state}") from None
