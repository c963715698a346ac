"""Runs test scenarios, each in a fake cluster of its own."""

from collections.abc import Awaitable, Callable

from fakes.cluster.cluster import FakeCluster
from kubeshare.simulator.control import run_virtual

Scenario = Callable[[FakeCluster], Awaitable[None]]


def run_scenario(scenario: Scenario, *, agents: bool = False, **gpus: int) -> FakeCluster:
    """Runs a scenario in a new cluster, in virtual time; returns the cluster as it was left.

    ``gpus`` maps the name of each node to its number of GPUs. With ``agents`` the real
    node agent runs on every node.
    """

    async def main() -> FakeCluster:
        cluster = FakeCluster(**gpus)
        cluster.agents = agents
        await cluster.play(scenario)
        return cluster

    return run_virtual(main())


def scenario(*, agents: bool = False, **gpus: int) -> Callable[[Scenario], Callable[[], None]]:
    """Decorates a test that takes a ``FakeCluster``, with the arguments of :func:`run_scenario`."""

    def decorate(test: Scenario) -> Callable[[], None]:
        def run() -> None:
            run_scenario(test, agents=agents, **gpus)

        # Not functools.wraps: pytest would look for a fixture named as the test's argument.
        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
