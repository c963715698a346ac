"""Actions that an arbiter asks its caller to carry out."""

import msgspec


class Open(msgspec.Struct, frozen=True):
    """Open the member's gate until ``lease_end_ns``.

    ``again``: it was closing and did not drain in time; that drain is no longer waited for.
    """

    member: str
    gpu: str
    lease_end_ns: int
    again: bool = False


class Watch(msgspec.Struct, frozen=True):
    """Ask the holder to report when it is idle, so that it is not charged for idle time."""

    member: str
    gpu: str


class Extend(msgspec.Struct, frozen=True):
    """Move the end of the holder's lease; its gate stays open."""

    member: str
    gpu: str
    lease_end_ns: int


class Close(msgspec.Struct, frozen=True):
    """Ask the holder to stop launching, and to report when the GPU has finished its work."""

    member: str
    gpu: str


class Shut(msgspec.Struct, frozen=True):
    """Close the member's gate. ``bypassed``: it did not report in time and may still be working."""

    member: str
    gpu: str
    bypassed: bool = False


Action = Open | Watch | Extend | Close | Shut
