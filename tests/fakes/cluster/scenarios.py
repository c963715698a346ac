"""Stories: each is told in a world of its own, and most are tests."""

from collections.abc import Awaitable, Callable

from fakes.cluster.world import World
from kubeshare.simulator.control import run_virtual


def in_world(
    story: Callable[[World], Awaitable[None]], *, agents: bool = False, **gpus: int
) -> World:
    """Play a test's story in a new world; returns the world as it was left."""

    async def main() -> World:
        world = World(**gpus)
        world.agents = agents
        await world.play(story)
        return world

    return run_virtual(main())


def story(
    *, agents: bool = False, **gpus: int
) -> Callable[[Callable[[World], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a story: it is played in a new world with these GPUs."""

    def decorate(tell: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
        def play() -> None:
            in_world(tell, agents=agents, **gpus)

        # Not functools.wraps: pytest would look for a fixture named as the story's argument.
        play.__name__, play.__doc__ = tell.__name__, tell.__doc__
        return play

    return decorate
