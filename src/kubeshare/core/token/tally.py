"""Counters of one member's share of one GPU."""

import msgspec


class Tally(msgspec.Struct):
    """Counters of a share since it was added.

    Attributes:
        charged_ns: GPU time charged.
        grants: how often its gate was opened.
        drains: how often it closed and then drained.
        drain_ns: total time from closing to the end of the drain.
        overruns: drains that took longer than the shortest grant.
        bypasses: drains that did not end in time.
        waits: how often it waited for the token.
        waited_ns: total time of the waits that ended.
        longest_wait_ns: the longest of them.
        gaps: how often use was not counted for a time, because no token daemon ran.
    """

    charged_ns: int = 0
    grants: int = 0
    drains: int = 0
    drain_ns: int = 0
    overruns: int = 0
    bypasses: int = 0
    waits: int = 0
    waited_ns: int = 0
    longest_wait_ns: int = 0
    gaps: int = 0
