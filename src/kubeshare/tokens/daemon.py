"""The daemon: grant files in, tokens out.

A thin shell. Who may hold what is decided by `fit`, who holds the token by
`kubeshare.core.token`; here their answers are carried out on files and sockets.
Nothing is polled: the kernel says when a grant file changes, when a process
speaks or dies, and when a lease is over.

A daemon that starts again finds the grant files and pages of the one before it,
and goes on: what was ACTIVE is activated first. A daemon that ends leaves the
files as they are; the processes run on, each paced by itself at its request,
and come back when there is a daemon again.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from kubeshare.core.token import Open, Shut
from kubeshare.tokens.arbitration import DEFAULT_RULES, Arbitration, Rules
from kubeshare.tokens.capacity import shortfall
from kubeshare.tokens.control import Handler, SetOverhead
from kubeshare.tokens.files.grant_folder import GrantFolder
from kubeshare.tokens.files.grants import Grant, read_grant, remove_grant
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.statuses import Status, write_status
from kubeshare.tokens.linux import Timer
from kubeshare.tokens.owners import Owners, holder_name
from kubeshare.tokens.session import Session
from kubeshare.tokens.snapshot import entries
from kubeshare.tokens.wire.connection import Rate
from kubeshare.tokens.wire.protocol import GrantState

log = structlog.get_logger(__name__)

_COMPLAINTS_PER_SECOND = 1
_COMPLAINTS_BURST = 5


class AnotherDaemonError(Exception):
    """The run folder has a daemon already."""

    exit_code = 1


class OnScanned(Protocol):
    """Told after each look at the grants."""

    def __call__(self, *, is_empty: bool) -> None: ...  # noqa: D102


class Daemon:
    """One machine's token daemon.

    Args:
        paths: of the run folder.
        loop: the running event loop.
        rules: by what the tokens are handed out.
        on_looked: told after each look at the grants whether there is none.
        on_lost: told that the run folder has been removed: nothing can be granted any more.

    Attributes:
        dropped: how many connections were closed for what their processes did.
    """

    def __init__(
        self,
        paths: Paths,
        loop: asyncio.AbstractEventLoop,
        *,
        rules: Rules = DEFAULT_RULES,
        on_looked: OnScanned = lambda *, is_empty: None,  # noqa: ARG005  a name of the protocol
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._paths = paths
        self._loop = loop
        self._on_looked = on_looked
        self._on_lost = on_lost
        self._clock = time.monotonic_ns
        self._lock = _take_lock(paths)
        self._timer = Timer()
        self._folder = GrantFolder(paths)
        self._claims: dict[str, Session] = {}
        self._tokens = Arbitration(
            rules,
            self._clock,
            on_deadline=self._timer.set,
            on_late=_warn_of_late_drain,
        )
        self._owners = Owners(loop, self._on_owner_gone)
        self._orphans: set[str] = set()
        self._postponed: set[str] = set()
        self._complaints: dict[str, Rate] = {}
        self.dropped = 0
        self._folder.sweep()
        loop.add_reader(self._folder.fd, self._look_at_grants)
        loop.add_reader(self._timer.fd, self._on_timer)
        self._look_at_grants()

    # ---- the grant files ----

    def _look_at_grants(self) -> None:
        """End, change and begin what is not as it was."""
        try:
            changes = self._folder.look()
        except FileNotFoundError:
            log.error("the run folder has been removed", folder=str(self._paths.root))  # noqa: TRY400  it says it all
            self._on_lost()
            return
        for path in changes.gone:
            self._end(path.stem)
        for path in changes.changed:
            self._change(path)
        for name in sorted(self._postponed):
            self._change(self._paths.grant(name))
        for claim in self._claims.values():
            if claim.state is GrantState.REFUSED:
                self._decide(claim)
        for path in changes.new:
            self._begin(path)
        self._on_looked(is_empty=not self._claims)

    def _change(self, path: Path) -> None:
        """A grant file says something else: a live grant that names the same GPUs goes on."""
        claim = self._claims.get(path.stem)
        if claim is None or claim.state is not GrantState.ACTIVE:
            self._end(path.stem)
            self._begin(path)
            return
        try:
            grant = read_grant(path)
        except (GrantError, OSError) as error:
            log.warning("change not understood, the grant stays as it was", error=str(error))
            return
        if _is_same_but_for_bounds(claim.grant, grant):
            self._change_bounds(claim, grant)
        else:
            self._end(claim.name)
            self._begin(path)

    def _change_bounds(self, claim: Session, grant: Grant) -> None:
        """Put other bounds in force; those that do not fit yet are tried at each later look."""
        live = self._live()
        live.remove(claim.grant)
        missing = shortfall(grant, live, holder_name)
        if missing:
            if claim.name not in self._postponed:
                log.warning("change refused", claim=claim.name, reason=missing)
            self._answer(claim.name, claim.state, f"the grant stays as it was: {missing}")
            self._postponed.add(claim.name)
            return
        self._postponed.discard(claim.name)
        claim.change(grant)
        self._tokens.change(grant)
        self._answer(claim.name, claim.state, "")
        log.info("grant changed", claim=claim.name)

    def _begin(self, path: Path) -> None:
        try:
            grant = read_grant(path)
        except FileNotFoundError:
            return
        except (GrantError, OSError) as error:
            log.warning("grant not understood", file=path.name, error=str(error))
            self._answer(path.stem, GrantState.REFUSED, str(error))
            return
        if grant.owner is not None and not self._owners.watch(grant.claim, grant.owner):
            log.info("owner gone before its grant began", claim=grant.claim)
            path.unlink(missing_ok=True)
            return
        try:
            claim = Session(self._paths, grant, loop=self._loop, clock=self._clock, events=self)
        except OSError as error:
            log.warning("claim's files cannot be made", claim=grant.claim, error=str(error))
            self._answer(grant.claim, GrantState.REFUSED, f"its files cannot be made: {error}")
            return
        self._claims[grant.claim] = claim
        self._decide(claim)

    def _live(self) -> list[Grant]:
        return [c.grant for c in self._claims.values() if c.state is GrantState.ACTIVE]

    def _decide(self, claim: Session) -> None:
        """Activate a grant that fits beside the live ones, refuse any other."""
        reason = shortfall(claim.grant, self._live(), holder_name)
        state = GrantState.REFUSED if reason else GrantState.ACTIVE
        if state is claim.state:
            return
        log.info("grant decided", claim=claim.name, state=state.name, reason=reason or "")
        if state is GrantState.ACTIVE:
            self._tokens.add(claim)
        claim.set_state(state)
        self._answer(claim.name, state, reason or "")

    def _answer(self, claim: str, state: GrantState, reason: str) -> None:
        try:
            write_status(self._paths, Status(claim=claim, state=state.name, reason=reason))  # type: ignore[arg-type]
        except GrantError as error:  # the file's name is no claim's: there is nobody to answer
            log.warning("no answer possible", error=str(error))

    def _end(self, name: str) -> None:
        """A grant file is gone or another: end what it granted."""
        self._owners.forget(name)
        self._orphans.discard(name)
        self._postponed.discard(name)
        self._complaints.pop(name, None)
        claim = self._claims.pop(name, None)
        if claim is None:
            return
        if claim.state is GrantState.ACTIVE:
            self._tokens.remove(name)
        claim.end()
        log.info("grant ended", claim=name)

    def _on_owner_gone(self, name: str) -> None:
        """Drop the grant, or when the owner left children on the GPU: after the last of them."""
        claim = self._claims.get(name)
        if claim is not None and claim.processes:
            self._orphans.add(name)
        else:
            self._drop(name)

    def _drop(self, name: str) -> None:
        remove_grant(self._paths, name)
        self._look_at_grants()

    # ---- what processes say (ClaimEvents) ----

    def on_want(self, claim: Session, gpus: list[str]) -> None:
        """A launch waits at a closed gate."""
        self._tokens.want(claim.name, gpus)

    def on_drained(self, claim: Session, cell: int, idle_ns: int) -> None:
        """The GPU was done with the claim at `idle_ns`."""
        self._tokens.drained(claim.name, claim.grant.gpus[cell].uuid, idle_ns)

    def on_busy(self, claim: Session, cell: int) -> None:
        """A drain of the claim goes on."""
        self._tokens.busy(claim.name, claim.grant.gpus[cell].uuid)

    def on_idle(self, claim: Session, cell: int) -> None:
        """The claim has nothing queued."""
        self._tokens.idle(claim.name, claim.grant.gpus[cell].uuid)

    def on_gone(self, claim: Session) -> None:
        """The last connection of the claim is closed."""
        self._tokens.gone(claim.name)
        if claim.name in self._orphans:
            # Not from within this claim's own callback: it ends the claim.
            self._loop.call_soon(self._drop, claim.name)

    def on_dropped(self, claim: Session, reason: str) -> None:
        """A connection was closed for what its process did."""
        self.dropped += 1
        now = self._clock()
        new = Rate(_COMPLAINTS_PER_SECOND, _COMPLAINTS_BURST, now)
        if self._complaints.setdefault(claim.name, new).allows(now):
            log.warning("connection dropped", claim=claim.name, reason=reason)

    # ---- time ----

    def _on_timer(self) -> None:
        self._tokens.tick()

    # ---- for people, and the end ----

    def snapshot(self) -> dict[str, Any]:
        """Who holds what now."""
        return {"pid": os.getpid(), "nowNs": self._clock(), "claims": self.entries()}

    def entries(self) -> list[dict[str, Any]]:
        """One entry for each GPU of each claim."""
        views = self._tokens.views()
        return [entry for claim in self._claims.values() for entry in entries(claim, views)]

    def connections(self) -> dict[str, Any]:
        """Which processes are connected."""
        return {
            "claims": [
                {"claim": claim.name, "connections": claim.processes, "pids": claim.pids}
                for claim in self._claims.values()
            ]
        }

    def set_overhead(self, asked: SetOverhead) -> None:
        """Show on a claim's page what the driver counts beyond what the library tracks.

        Raises:
            LookupError: no such claim, or no such part of it.
        """
        claim = self._claims.get(asked.claim)
        if claim is None:
            raise LookupError(f"no claim {asked.claim} here")
        claim.set_overhead(asked.uuid, asked.bytes)

    def commands(self) -> dict[str, tuple[Grant, list[int]]]:
        """The live grants of `kubeshare run`, each with the processes that are connected."""
        return {
            claim.name: (claim.grant, claim.pids)
            for claim in self._claims.values()
            if claim.grant.owner is not None and claim.state is GrantState.ACTIVE
        }

    def answers(self) -> dict[str, Handler]:
        """What can be asked at the door."""

        def set_overhead(line: bytes) -> dict[str, Any]:
            self.set_overhead(msgspec.json.decode(line, type=SetOverhead))
            return {}

        return {
            "snapshot": lambda _: self.snapshot(),
            "connections": lambda _: self.connections(),
            "overhead": set_overhead,
        }

    def close(self) -> None:
        """Let go of everything but the files."""
        for claim in self._claims.values():
            claim.release()
        self._owners.close()
        for watched in (self._timer, self._folder):
            self._loop.remove_reader(watched.fd)
            watched.close()
        os.close(self._lock)


def _is_same_but_for_bounds(before: Grant, after: Grant) -> bool:
    """Whether both name the same GPUs in the same order for the same holder."""
    uuids = [gpu.uuid for gpu in before.gpus]
    return uuids == [gpu.uuid for gpu in after.gpus] and before.owner == after.owner


def _warn_of_late_drain(done: Open | Shut) -> None:
    what = "bypassed" if isinstance(done, Shut) else "its gate is opened once more"
    log.warning("holder did not drain in time", claim=done.member, gpu=done.gpu, done=what)


def _take_lock(paths: Paths) -> int:
    """Be the only daemon of the folder, for as long as the descriptor is open.

    Raises:
        AnotherDaemonError: there is one.
    """
    paths.make()
    lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise AnotherDaemonError(
            f"the token daemon with pid {pid} serves {paths.root} already: "
            "stop it first, or name another folder with --run-folder"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
