"""Faults that the fake API server injects into requests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["answer", "reset", "refuse", "hang", "end", "duplicate", "late", "slow", "none"]


@dataclass(frozen=True)
class Fault:
    """One fault of a request.

    ``after`` executes the request first, so only its answer is lost or wrong. ``action`` is
    called when the fault strikes, for example to kill a program at that moment.
    """

    kind: Kind
    status: int = 0
    reason: str = ""
    retry_after: int | None = None
    after: bool = False
    seconds: float = 0.0
    action: Callable[[], None] | None = field(default=None, compare=False)

    @classmethod
    def answer(
        cls, status: int, reason: str = "", *, retry_after: int | None = None, after: bool = False
    ) -> "Fault":
        """The server answers with an error."""
        return cls("answer", status, reason, retry_after, after)

    @classmethod
    def reset(cls, *, after: bool = False, action: Callable[[], None] | None = None) -> "Fault":
        """The connection breaks before, or after, the request takes effect."""
        return cls("reset", after=after, action=action)

    @classmethod
    def refuse(cls) -> "Fault":
        """The connection is refused."""
        return cls("refuse")

    @classmethod
    def hang(cls, *, after: bool = False, action: Callable[[], None] | None = None) -> "Fault":
        """The request gets no answer."""
        return cls("hang", after=after, action=action)

    @classmethod
    def end(cls) -> "Fault":
        """A watch is answered and ends at once."""
        return cls("end")

    @classmethod
    def duplicate(cls) -> "Fault":
        """The request is executed twice, and the second answer arrives."""
        return cls("duplicate")

    @classmethod
    def late(cls, seconds: float, *, action: Callable[[], None] | None = None) -> "Fault":
        """The request takes effect after so many seconds, and gets no answer."""
        return cls("late", seconds=seconds, action=action)

    @classmethod
    def slow(cls, seconds: float, *, after: bool = False) -> "Fault":
        """The request is answered after so many seconds, and takes effect only then or before."""
        return cls("slow", after=after, seconds=seconds)

    @classmethod
    def preceded_by(cls, action: Callable[[], None]) -> "Fault":
        """The request is executed after ``action``, which happens while it is on its way."""
        return cls("none", action=action)


@dataclass
class Script:
    """A fault and the requests that it affects."""

    fault: Fault
    verb: str | None
    resource: str | None
    name: str | None
    skip: int
    times: int

    def strikes(self, verb: str, resource: str, name: str) -> bool:
        """Whether this request is affected; counts matching requests."""
        if self.name not in (None, name):
            return False
        if self.verb not in (None, verb) or self.resource not in (None, resource):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if not self.times:
            return False
        self.times -= 1
        return True
