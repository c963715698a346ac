"""Expectations about vGPUs, their holders and placeholders."""

from typing import Any

from expectations.waiting import wait
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.state import degraded, held, holding, mode, owned, vgpu_phases
from kubeshare.api.types.v1 import VGPUS

Raw = dict[str, Any]


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

    await wait(cluster, found, f"{count} vGPUs, {placeholders} placeholders", (), seconds)
    return list(cluster.vgpus())


async def expect_no_vgpus(cluster: FakeCluster, seconds: float | None = None) -> None:
    """No vGPU is left."""
    await expect_vgpus(cluster, 0, seconds=seconds)


async def expect_vgpu_deleted(
    cluster: FakeCluster, gpuid: str, seconds: float | None = None
) -> None:
    """There is no vGPU of this GPUID."""
    await wait(cluster, lambda: gpuid not in cluster.vgpus(), f"{gpuid} deleted", (), seconds)


async def expect_phases(cluster: FakeCluster, *phases: str, seconds: float | None = None) -> None:
    """The vGPUs have these phases, in any order."""
    wanted = sorted(phases)
    await wait(cluster, lambda: vgpu_phases(cluster) == wanted, f"phases {wanted}", (), seconds)


async def expect_phase(
    cluster: FakeCluster, *gpuids: str, phase: str, seconds: float | None = None
) -> None:
    """Each of the vGPUs has this phase."""

    def reached() -> bool:
        return all(cluster.vgpu(each)["status"].get("phase") == phase for each in gpuids)

    await wait(cluster, reached, f"{gpuids} {phase}", (), seconds)


async def expect_idle_vgpus(cluster: FakeCluster, count: int, seconds: float | None = None) -> None:
    """So many vGPUs are idle; others may be in another phase."""
    await wait(
        cluster, lambda: vgpu_phases(cluster).count("Idle") == count, f"{count} idle", (), seconds
    )


async def expect_activated(cluster: FakeCluster, seconds: float | None = None) -> None:
    """There are vGPUs, and each has the UUID of its GPU."""

    def activated() -> bool:
        vgpus = cluster.server.all(VGPUS)
        return bool(vgpus) and all(vgpu["spec"].get("uuid") for vgpu in vgpus)

    await wait(cluster, activated, "vGPUs activated", (), seconds)


async def expect_degraded(
    cluster: FakeCluster, reason: str = "", seconds: float | None = None
) -> Raw:
    """The only vGPU has the condition Degraded, with this reason (also ``Healthy``)."""

    def found() -> bool:
        condition = degraded(cluster)
        return bool(condition) and reason in {"", condition["reason"]}

    await wait(cluster, found, f"vGPU Degraded {reason}", (), seconds)
    return degraded(cluster)


async def expect_owned(
    cluster: FakeCluster, node: str, reason: str = "Owned", seconds: float | None = None
) -> Raw:
    """The GPUNode of a node has the condition Owned with this reason."""
    await wait(
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
    await wait(cluster, lambda: held(cluster) == wanted, f"holders {wanted}", (), seconds)


async def expect_holding(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """Exactly these hold shares, of whichever vGPUs, each as many as it is named."""
    wanted = sorted(names)
    await wait(cluster, lambda: holding(cluster) == wanted, f"holders {wanted}", names, seconds)


async def expect_holder_count(
    cluster: FakeCluster, count: int, seconds: float | None = None
) -> None:
    """All vGPUs together have so many holders."""
    await wait(cluster, lambda: len(holding(cluster)) == count, f"{count} holders", (), seconds)


async def expect_shared_gpu(
    cluster: FakeCluster, *names: str, seconds: float | None = None
) -> None:
    """Exactly these are the holders of one vGPU."""
    await wait(cluster, lambda: cluster.shares_gpu(*names), f"{names} on one vGPU", names, seconds)


async def expect_released(cluster: FakeCluster, *names: str, seconds: float | None = None) -> None:
    """None of these holds a share; without names, nobody does."""

    def released() -> bool:
        found = holding(cluster)
        return not set(found).intersection(names) if names else not found

    await wait(cluster, released, f"shares of {names or 'all'} released", names, seconds)


async def expect_placeholders(
    cluster: FakeCluster, count: int, seconds: float | None = None
) -> list[str]:
    """There are so many placeholder pods; returns their names."""
    await wait(
        cluster, lambda: len(cluster.placeholders()) == count, f"{count} placeholders", (), seconds
    )
    return cluster.placeholders()


async def expect_cleaned_up(cluster: FakeCluster, seconds: float | None = None) -> None:
    """Neither a vGPU nor a placeholder is left."""

    def clean() -> bool:
        return not cluster.vgpus() and not cluster.placeholders()

    await wait(cluster, clean, "no vGPU and no placeholder", (), seconds)


async def expect_mode(
    cluster: FakeCluster, node: str, expected: str, seconds: float | None = None
) -> None:
    """The GPUNode of a node records this mode."""
    await wait(
        cluster, lambda: mode(cluster, node) == expected, f"{node} is {expected}", (), seconds
    )
