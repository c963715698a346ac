"""Plays scenarios, written as for ``kubeshare plan``, through the core."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from kubeshare.core.decision import device_names
from kubeshare.core.simulation import PlacementQueue
from kubeshare.dialects.scenario.scenario import Release, Request, read_scenario


class Placed(NamedTuple):
    """Where a request went: its node and the names of its GPUs; no node if it waits."""

    node: str | None
    gpus: tuple[str, ...]


def play(scenario: Mapping[str, Any]) -> dict[str, Placed]:
    """Where each request of a scenario of requests and releases goes at first, by name.

    Raises:
        FileError: the scenario is not valid.
    """
    read = read_scenario(yaml.safe_dump(dict(scenario)).encode(), "scenario")
    queue = PlacementQueue(read.ledger, read.policy)
    placed: dict[str, Placed] = {}
    for event in read.events:
        if isinstance(event, Request):
            decision = queue.submit(event.demand)
            gpus = device_names(decision, read.ledger.devices)
            placed[event.demand.name] = Placed(decision.node, gpus)
        elif isinstance(event, Release):
            for _ in queue.release(event.demand_uid):
                pass  # what waited and is placed now
        else:
            raise TypeError(event)
    return placed
