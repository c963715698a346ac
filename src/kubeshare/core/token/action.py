"""What an arbiter asks to be done."""

import msgspec


class Open(msgspec.Struct, frozen=True):
    """Open the member's gate until `lease_end_ns`.

    `again`: it was closing and has not drained in time; that drain is not waited for any more.
    """

    member: str
    gpu: str
    lease_end_ns: int
    again: bool = False


class Watch(msgspec.Struct, frozen=True):
    """Ask the holder to say when it is idle: it would be charged for nothing."""

    member: str
    gpu: str


class Extend(msgspec.Struct, frozen=True):
    """Move the end of the holder's lease; its gate stays open."""

    member: str
    gpu: str
    lease_end_ns: int


class Close(msgspec.Struct, frozen=True):
    """Ask the holder to stop launching, and to report when the GPU is done with it."""

    member: str
    gpu: str


class Shut(msgspec.Struct, frozen=True):
    """Close the member's gate. `bypassed`: it did not report in time, its work may go on."""

    member: str
    gpu: str
    bypassed: bool = False


Action = Open | Watch | Extend | Close | Shut
