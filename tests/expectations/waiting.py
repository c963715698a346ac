"""Waits until the fake cluster is in a state, and describes it otherwise."""

from collections.abc import Callable

from fakes.cluster.cluster import FakeCluster
from fakes.cluster.state import describe


async def wait(
    cluster: FakeCluster,
    condition: Callable[[], object],
    expected: str,
    names: str | tuple[str, ...],
    seconds: float | None,
) -> None:
    """Wait until a condition holds.

    Args:
        cluster: the fake cluster.
        condition: the state that is expected.
        expected: the same in words.
        names: the objects that it is about.
        seconds: of virtual time, at most; None means the cluster's ``deadline``.

    Raises:
        AssertionError: the deadline has passed; describes these objects and all vGPUs.
    """
    try:
        await cluster.until(condition, seconds)
    except AssertionError as error:
        state = describe(cluster, *((names,) if isinstance(names, str) else names))
        raise AssertionError(f"expected {expected.strip()}: {error}\n{state}") from None
