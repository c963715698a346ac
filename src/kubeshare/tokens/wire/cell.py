"""What the daemon asked the processes of a claim about one gate."""

from kubeshare.tokens.wire.connection import Connection


class Cell:
    """What the processes were asked about one gate, and which have not answered.

    Attributes:
        asked_epoch: the epoch of the last CLOSING.
        draining: connections that have not answered it.
        late_epoch: the epoch of the CLOSING before that, while the gate is open again.
        late: connections that had not answered that one when the gate opened.
        drained_ns: the latest end of work that was reported.
        watched: whether the processes are asked for IDLE in the present epoch.
        idle: connections that sent IDLE in it.
        is_owed: whether processes have left without an answer, or while the gate was open: the
            next one that connects is asked instead.
    """

    __slots__ = (
        "asked_epoch",
        "drained_ns",
        "draining",
        "idle",
        "is_owed",
        "late",
        "late_epoch",
        "watched",
    )

    def __init__(self) -> None:
        self.asked_epoch: int | None = None
        self.draining: set[Connection] = set()
        self.late_epoch: int | None = None
        self.late: set[Connection] = set()
        self.drained_ns = 0
        self.watched = False
        self.idle: set[Connection] = set()
        self.is_owed = False
