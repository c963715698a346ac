"""Turns grant files into sessions and hands out their tokens.

`capacity` decides which grants are active, and `kubeshare.core.token` which session holds
the token; the daemon applies these decisions to files and sockets. It polls nothing: the
kernel reports changed grant files, messages, ended processes and ended leases.

A daemon that starts finds the grant files and pages of its predecessor and continues from
them: what was active goes on, as far as it asks for no more than before. Where it cannot be
read, as after a rollback, its GPUs are given to no other grant. A daemon that stops leaves the
files in place: the processes continue, pace themselves at their requests, and connect again
once there is a daemon.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from kubeshare.core.token import Open, Shut
from kubeshare.tokens.arbitration import DEFAULT_RULES, Arbitration, Rules
from kubeshare.tokens.capacity import exceeds, shortfall
from kubeshare.tokens.control import Handler, SetOverhead
from kubeshare.tokens.files import folder_lock
from kubeshare.tokens.files.grant_folder import GrantFolder
from kubeshare.tokens.files.grants import Grant, read_grant, remove_grant
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.running_grants import RunningGrant, find_running
from kubeshare.tokens.files.statuses import Status, write_status
from kubeshare.tokens.linux import Timer
from kubeshare.tokens.owners import Owners, holder_name
from kubeshare.tokens.session import Session, remove_files
from kubeshare.tokens.snapshot import Totals, entries
from kubeshare.tokens.usage import UsageCache
from kubeshare.tokens.wire.protocol import GrantState
from kubeshare.tokens.wire.rate import Rate, Spare

log = structlog.get_logger(__name__)

RETRY_SECONDS = 60.0
"""When a grant whose files could not be made is tried again: the kernel breaks a container's lease
of such a file within 45 s."""
_COMPLAINTS_PER_SECOND = 1
_COMPLAINTS_BURST = 5


class OnScanned(Protocol):
    """Called after each scan of the grant files."""

    def __call__(self, *, is_empty: bool) -> None: ...  # noqa: D102


class Daemon:
    """One machine's token daemon.

    Args:
        paths: of the run folder.
        loop: the running event loop.
        rules: how the tokens are handed out.
        on_scanned: called after each scan of the grant files with whether there is none.
        on_lost: called when the run folder has been removed: nothing can be granted any more.
        stood_by: whether it waited for the end of the one before, which it follows at once.

    Attributes:
        dropped: how many connections were closed for what their processes did.
        paused: how often a session's messages were not read for a while, for their number.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        paths: Paths,
        loop: asyncio.AbstractEventLoop,
        *,
        rules: Rules = DEFAULT_RULES,
        on_scanned: OnScanned = lambda *, is_empty: None,  # noqa: ARG005  a name of the protocol
        on_lost: Callable[[], None] = lambda: None,
        stood_by: bool = False,
    ) -> None:
        self._paths = paths
        self._loop = loop
        self._on_scanned = on_scanned
        self._on_lost = on_lost
        self._clock = time.monotonic_ns
        self._lock = folder_lock.take(paths)
        self._is_after_gap = not (stood_by and self._lock.was_released)
        self._timer = Timer()
        self._folder = GrantFolder(paths)
        self._sessions: dict[str, Session] = {}
        self._tokens = Arbitration(
            rules,
            self._clock,
            on_deadline=self._timer.set,
            on_late=_warn_of_late_drain,
        )
        self._owners = Owners(loop, self._on_owner_gone)
        self._orphans: set[str] = set()
        self._postponed: set[str] = set()
        self._unmade: dict[str, Grant | None] = {}  # with the grant, if it runs nevertheless
        self._unread: dict[str, RunningGrant] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._complaints: dict[str, Rate] = {}
        self._spare = Spare()
        self._usage = UsageCache(paths)
        self.dropped = 0
        self.paused = 0
        self._folder.sweep()
        loop.add_reader(self._folder.fd, self._scan_grants)
        loop.add_reader(self._timer.fd, self._tokens.tick)
        self._has_started = False
        self._scan_grants()
        self._has_started = True

    # ---- the grant files ----

    def _scan_grants(self) -> None:
        """End, change and begin grants according to what changed in the folder."""
        try:
            changes = self._folder.scan()
        except FileNotFoundError:
            log.error("the run folder has been removed", folder=str(self._paths.root))  # noqa: TRY400  the message is complete
            self._on_lost()
            return
        for path in changes.gone:
            self._end(path.stem)
            with contextlib.suppress(GrantError):  # no claim has such a name, nor any files
                remove_files(self._paths, path.stem)
        for path in changes.changed:
            self._change(path)
        for name in sorted(self._unmade):
            self._owners.forget(name)
            self._begin(self._paths.grant(name))
        for path in changes.new:
            self._begin(path)  # what was running goes on, before the others are decided
        for name in sorted(self._postponed):
            self._change(self._paths.grant(name))
        for session in self._sessions.values():
            if session.state is not GrantState.ACTIVE:
                self._decide(session)
        if self._unmade and self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)
        self._on_scanned(is_empty=not self._sessions)

    def _try_again(self) -> None:
        self._retry = None
        self._scan_grants()

    def _change(self, path: Path) -> None:
        """Handle a rewritten grant file: a live grant of the same GPUs continues."""
        session = self._sessions.get(path.stem)
        if session is None or session.state is not GrantState.ACTIVE:
            self._end(path.stem)
            self._begin(path)
            return
        try:
            grant = read_grant(path)
        except (GrantError, OSError) as error:
            log.warning("change not understood, the grant stays as it was", error=str(error))
            return
        if _differs_only_in_amounts(session.grant, grant):
            self._change_amounts(session, grant)
        else:
            self._end(session.name)
            self._begin(path)

    def _change_amounts(self, session: Session, grant: Grant) -> None:
        """Apply other amounts; a change that does not fit is tried again at each later scan."""
        live = self._live()
        live.remove(session.grant)
        missing = self._missing(grant, live) if exceeds(grant, session.grant) else None
        if missing:
            if session.name not in self._postponed:
                log.warning("change refused", claim=session.name, reason=missing)
            self._write_status(session.name, session.state, f"the grant stays as it was: {missing}")
            self._postponed.add(session.name)
            return
        self._postponed.discard(session.name)
        session.change(grant)
        self._tokens.change(grant)
        self._write_status(session.name, session.state, "")
        log.info("grant changed", claim=session.name)

    def _begin(self, path: Path) -> None:
        """Make a session of a grant file; what an earlier daemon left running goes on."""
        running = find_running(self._paths, path.stem)
        try:
            grant = read_grant(path)
        except FileNotFoundError:
            return
        except (GrantError, OSError) as error:
            log.warning(
                "grant not understood", file=path.name, error=str(error), runs=running is not None
            )
            self._write_status(path.stem, GrantState.REFUSED, str(error))
            if running is not None:
                self._unread[path.stem] = running
            return
        if grant.owner is not None and not self._owners.watch(grant.claim, grant.owner):
            log.info("owner gone before its grant began", claim=grant.claim)
            path.unlink(missing_ok=True)
            return
        try:
            session = Session(
                self._paths,
                grant,
                loop=self._loop,
                clock=self._clock,
                tokens=self._tokens,
                events=self,
                spare=self._spare,
            )
        except OSError as error:
            log.warning("claim's files cannot be made", claim=grant.claim, error=str(error))
            self._write_status(
                grant.claim, GrantState.REFUSED, f"its files cannot be made: {error}"
            )
            # Tried again at each later scan, and after a time.
            self._unmade[grant.claim] = None if running is None else grant
            return
        self._unmade.pop(grant.claim, None)
        # What begins later and runs already did so until its files could be made or read.
        ran_uncounted = running is not None if self._has_started else self._is_after_gap
        if ran_uncounted:
            session.note_gap()
        self._sessions[grant.claim] = session
        if running is not None and running.covers(grant):
            self._continue(session)

    def _live(self) -> list[Grant]:
        """The grants that run, as far as they can be read."""
        served = [c.grant for c in self._sessions.values() if c.state is GrantState.ACTIVE]
        return [*served, *(grant for grant in self._unmade.values() if grant is not None)]

    def _missing(self, grant: Grant, live: list[Grant]) -> str | None:
        """Why a grant cannot be active beside the live ones, and those that cannot be read."""
        for gpu in grant.gpus:
            for name, running in self._unread.items():
                if running.may_use(gpu.uuid):
                    return (
                        f"{gpu.uuid} may be in use by grant {name}, which an earlier token daemon "
                        "activated and this one cannot read: end its pod or command, or run the "
                        "release of that daemon again"
                    )
        return shortfall(grant, live, holder_name)

    def _continue(self, session: Session) -> None:
        """Keep a grant active that runs, whether or not it would fit if it began now."""
        missing = shortfall(session.grant, self._live(), holder_name)
        if missing:
            log.warning("a grant goes on that would not begin", claim=session.name, reason=missing)
        self._set_state(session, GrantState.ACTIVE, "")

    def _decide(self, session: Session) -> None:
        """Activate the grant if it fits beside the live ones, else refuse it."""
        reason = self._missing(session.grant, self._live()) or ""
        state = GrantState.REFUSED if reason else GrantState.ACTIVE
        if state is not session.state:
            self._set_state(session, state, reason)

    def _set_state(self, session: Session, state: GrantState, reason: str) -> None:
        log.info("grant decided", claim=session.name, state=state.name, reason=reason)
        if state is GrantState.ACTIVE:
            self._tokens.add(session)
            session.change(session.grant)  # until now the page has had what ran before
        session.set_state(state)
        self._write_status(session.name, state, reason)

    def _write_status(self, claim: str, state: GrantState, reason: str) -> None:
        try:
            write_status(self._paths, Status(claim=claim, state=state.name, reason=reason))  # type: ignore[arg-type]
        except GrantError as error:  # the file's name is not that of a claim
            log.warning("no answer possible", error=str(error))
        except OSError as error:  # a full run folder; who waits asks again
            log.warning("answer not written", claim=claim, error=str(error))

    def _end(self, name: str) -> None:
        """End the session of a grant file that is gone or names other GPUs."""
        self._owners.forget(name)
        self._orphans.discard(name)
        self._postponed.discard(name)
        self._unmade.pop(name, None)
        self._unread.pop(name, None)
        self._complaints.pop(name, None)
        session = self._sessions.pop(name, None)
        if session is None:
            return
        if session.state is GrantState.ACTIVE:
            self._tokens.remove(name)
        session.end()
        log.info("grant ended", claim=name)

    def _on_owner_gone(self, name: str) -> None:
        """End the grant, or wait for the last child that the owner left on the GPU."""
        session = self._sessions.get(name)
        if session is not None and session.processes:
            self._orphans.add(name)
        else:
            self._drop(name)

    def _drop(self, name: str) -> None:
        remove_grant(self._paths, name)
        self._scan_grants()

    # ---- what happens to sessions (SessionEvents) ----

    def on_gone(self, session: Session) -> None:
        """Handle that the last connection of the session is closed."""
        self._tokens.gone(session.name)
        if session.name in self._orphans:
            # Not from within the session's own callback: this ends the session.
            self._loop.call_soon(self._drop, session.name)

    def on_dropped(self, session: Session, reason: str) -> None:
        """Count and log a connection that was closed for what its process did."""
        self.dropped += 1
        if self._may_complain(session):
            log.warning("connection dropped", claim=session.name, reason=reason)

    def on_paused(self, session: Session, seconds: float) -> None:
        """Count and log that a session sent too many messages."""
        self.paused += 1
        if self._may_complain(session):
            log.warning("too many messages: not read for a while", claim=session.name, s=seconds)

    def _may_complain(self, session: Session) -> bool:
        now = self._clock()
        new = Rate(_COMPLAINTS_PER_SECOND, _COMPLAINTS_BURST, now)
        return self._complaints.setdefault(session.name, new).allows(now)

    # ---- the control socket, and the end ----

    async def snapshot(self) -> dict[str, Any]:
        """The state of all sessions, with the daemon's pid and clock."""
        await self.refresh_usage()
        return {"pid": os.getpid(), "nowNs": self._clock(), "claims": self.entries()}

    async def refresh_usage(self) -> None:
        """Read anew what the processes say they use, if that is due."""
        await self._usage.refresh(self._sessions)

    def entries(self) -> list[dict[str, Any]]:
        """One entry for each GPU of each session."""
        views = self._tokens.views()
        return [
            entry
            for session in self._sessions.values()
            for entry in entries(session, views, self._usage.of(session.name))
        ]

    def totals(self) -> Totals:
        """The daemon's own counts."""
        waits = self._tokens.waits
        return Totals(
            self.dropped,
            self.paused,
            self._usage.skipped(),
            wait_counts=tuple(waits.counts),
            waited_ns=waits.total_ns,
        )

    def connections(self) -> dict[str, Any]:
        """The connected processes of each claim."""
        return {
            "claims": [
                {"claim": session.name, "connections": session.processes, "pids": session.pids}
                for session in self._sessions.values()
            ]
        }

    def hung(self) -> dict[str, Any]:
        """The claims whose work on a GPU did not end in time, and has not since."""
        found: dict[str, dict[str, list[int]]] = {}
        for (claim, uuid), view in self._tokens.views().items():
            if view.owes_report:
                session = self._sessions[claim]
                found.setdefault(claim, {})[uuid] = session.undrained_pids(session.cell_of(uuid))
        return {"claims": [{"claim": claim, "gpus": gpus} for claim, gpus in found.items()]}

    def set_overhead(self, request: SetOverhead) -> None:
        """Publish on a claim's page what the driver counts beyond what the library tracks.

        Raises:
            LookupError: there is no such claim, or it has no share of this GPU.
        """
        session = self._sessions.get(request.claim)
        if session is None:
            raise LookupError(f"no claim {request.claim} here")
        session.set_overhead(request.uuid, request.bytes)

    def commands(self) -> dict[str, tuple[Grant, list[int]]]:
        """The live grants of `kubeshare run`, each with the pids of its connected processes."""
        return {
            session.name: (session.grant, session.pids)
            for session in self._sessions.values()
            if session.grant.owner is not None and session.state is GrantState.ACTIVE
        }

    def handlers(self) -> dict[str, Handler]:
        """The handlers of the control socket's requests, by name."""

        async def snapshot(_line: bytes) -> dict[str, Any]:
            return await self.snapshot()

        async def connections(_line: bytes) -> dict[str, Any]:
            return self.connections()

        async def hung(_line: bytes) -> dict[str, Any]:
            return self.hung()

        async def overhead(line: bytes) -> dict[str, Any]:
            self.set_overhead(msgspec.json.decode(line, type=SetOverhead))
            return {}

        handlers = (snapshot, connections, hung, overhead)
        return {handler.__name__: handler for handler in handlers}

    def close(self) -> None:
        """Save the counts and release everything but the files."""
        self._tokens.save_tallies()
        for session in self._sessions.values():
            session.release()
        self._owners.close()
        if self._retry is not None:
            self._retry.cancel()
        for watched in (self._timer, self._folder):
            self._loop.remove_reader(watched.fd)
            watched.close()
        folder_lock.release(self._lock)


def _differs_only_in_amounts(before: Grant, after: Grant) -> bool:
    """Whether both grant the same GPUs in the same order to the same owner."""
    uuids = [gpu.uuid for gpu in before.gpus]
    return uuids == [gpu.uuid for gpu in after.gpus] and before.owner == after.owner


def _warn_of_late_drain(done: Open | Shut) -> None:
    what = "bypassed" if isinstance(done, Shut) else "its gate is opened once more"
    log.warning("holder did not drain in time", claim=done.member, gpu=done.gpu, done=what)
