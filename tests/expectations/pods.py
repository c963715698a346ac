"""Expectations about SharePods and pods."""

from typing import Any

from expectations.waiting import wait
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.state import (
    condition_of,
    evicted,
    is_same_pod,
    is_sharepod,
    plain_pods,
    running_plain_pods,
    the_pod,
)
from kubeshare.simulator.control_tier.stored import being_deleted, gated

Raw = dict[str, Any]


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

    await wait(cluster, found, f"{name} {kind} {reason} {status} {message}", name, seconds)
    return condition_of(cluster, name, kind)


async def expect_event(
    cluster: FakeCluster, name: str, *words: str, seconds: float | None = None
) -> list[str]:
    """Events about an object contain each of the words; without words, there is an event."""

    def found() -> bool:
        events = cluster.events(name)
        return bool(events) and all(any(word in event for event in events) for word in words)

    await wait(cluster, found, f"event about {name} {words or ''}", name, seconds)
    return cluster.events(name)


async def expect_running(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """The pods of these names run."""
    await wait(cluster, lambda: cluster.running(*names), f"{names} running", names, seconds)


async def expect_any_running(
    cluster: FakeCluster, *names: str, seconds: float | None = None
) -> list[str]:
    """At least one of these pods runs; returns those that do."""
    await wait(
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

    await wait(cluster, found, f"{count} plain pods running", tuple(plain_pods(cluster)), seconds)
    return running_plain_pods(cluster)


async def expect_plain_pods(
    cluster: FakeCluster, count: int, *, without: str = "", seconds: float | None = None
) -> list[str]:
    """There are so many plain pods, ``without`` not among them; returns their names."""

    def found() -> bool:
        names = plain_pods(cluster)
        return len(names) == count and without not in names

    await wait(cluster, found, f"{count} plain pods", tuple(plain_pods(cluster)), seconds)
    return plain_pods(cluster)


async def expect_sharepod_phase(
    cluster: FakeCluster, name: str, phase: str, seconds: float | None = None
) -> None:
    """The status of a SharePod has this phase."""
    await wait(
        cluster,
        lambda: cluster.sharepod(name).get("status", {}).get("phase") == phase,
        f"{name} {phase}",
        name,
        seconds,
    )


async def expect_ready(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """The SharePods have the condition Ready with status True."""
    await wait(cluster, lambda: all(map(cluster.ready, names)), f"{names} ready", names, seconds)


async def expect_pod(cluster: FakeCluster, name: str, seconds: float | None = None) -> Raw:
    """There is a pod of this name in namespace default."""
    await wait(cluster, lambda: cluster.pod(name), f"pod {name}", name, seconds)
    return the_pod(cluster, name)


async def expect_no_pod(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """There is no pod of any of these names in namespace default."""

    def absent() -> bool:
        return all(cluster.pod(name) is None for name in names)

    await wait(cluster, absent, f"no pod {names}", names, seconds)


async def expect_replaced(cluster: FakeCluster, pod: Raw, seconds: float | None = None) -> None:
    """A pod is gone; another pod may have its name."""
    name = pod["metadata"]["name"]
    await wait(cluster, lambda: not is_same_pod(cluster, pod), f"{name} replaced", name, seconds)


async def expect_terminating(cluster: FakeCluster, name: str, seconds: float | None = None) -> None:
    """A pod is being deleted, or gone."""

    def terminating() -> bool:
        pod = cluster.pod(name)
        return pod is None or being_deleted(pod)

    await wait(cluster, terminating, f"{name} terminating", name, seconds)


async def expect_ungated(cluster: FakeCluster, name: str, seconds: float | None = None) -> None:
    """A pod has no scheduling gate."""
    await wait(cluster, lambda: not gated(the_pod(cluster, name)), f"{name} ungated", name, seconds)


async def expect_bound(
    cluster: FakeCluster, name: str, *, without: str = "", seconds: float | None = None
) -> str:
    """A pod has a node, and not the node ``without``; returns its node."""

    def bound() -> bool:
        pod = cluster.pod(name)
        return pod is not None and pod["spec"].get("nodeName", "") not in {"", without}

    await wait(cluster, bound, f"{name} bound", name, seconds)
    return str(the_pod(cluster, name)["spec"]["nodeName"])


async def expect_owner(
    cluster: FakeCluster, name: str, owner: Raw, seconds: float | None = None
) -> None:
    """A pod has exactly this owner, by its uid."""

    def owned() -> bool:
        pod = cluster.pod(name)
        owners = pod["metadata"].get("ownerReferences", []) if pod else []
        return [each["uid"] for each in owners] == [owner["metadata"]["uid"]]

    await wait(cluster, owned, f"{name} of {owner['metadata']['uid']}", name, seconds)


async def expect_deleted(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """There are no SharePods of these names."""

    def deleted() -> bool:
        return not any(is_sharepod(cluster, name) for name in names)

    await wait(cluster, deleted, f"SharePods {names} deleted", names, seconds)


async def expect_evictions(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """Exactly these pods were asked to leave by the eviction API, each as often as named."""
    wanted = sorted(names)
    await wait(
        cluster, lambda: sorted(evicted(cluster)) == wanted, f"{names} evicted", names, seconds
    )
