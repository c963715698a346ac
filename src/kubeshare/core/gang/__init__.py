"""Gangs: demands that are placed together or not at all."""

from kubeshare.core.gang.gang import Gang, GangPlacement, PlacedMember
from kubeshare.core.gang.near_search import likely_scopes
from kubeshare.core.gang.nearness import Near, Nearness
from kubeshare.core.gang.orders import ORDERS
from kubeshare.core.gang.placement import near_to, place_gang, placements

__all__ = [
    "ORDERS",
    "Gang",
    "GangPlacement",
    "Near",
    "Nearness",
    "PlacedMember",
    "likely_scopes",
    "near_to",
    "place_gang",
    "placements",
]
