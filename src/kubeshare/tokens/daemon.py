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
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from kubeshare.core.token.arbiter import QUOTA_NS
from kubeshare.tokens.claim import Claim
from kubeshare.tokens.connection import Rate
from kubeshare.tokens.control import Answer, SetOverhead
from kubeshare.tokens.files import (
    GrantError,
    Paths,
    Status,
    read_grant,
    read_status,
    remove_grant,
    write_status,
)
from kubeshare.tokens.fit import shortfall
from kubeshare.tokens.gpu import Gpu
from kubeshare.tokens.linux import FolderWatch, Timer
from kubeshare.tokens.owners import Owners, holder_name
from kubeshare.tokens.snapshot import entries
from kubeshare.tokens.wire import GrantState

log = structlog.get_logger(__name__)

_COMPLAINTS_PER_SECOND = 1
_COMPLAINTS_BURST = 5

# What tells one writing of a file from another: inode, size, time of change.
Signature = tuple[int, int, int]


class AnotherDaemonError(Exception):
    """The run folder has a daemon already."""

    exit_code = 1


class OnLooked(Protocol):
    """Told after each look at the grants."""

    def __call__(self, *, is_empty: bool) -> None: ...  # noqa: D102


class Daemon:
    """One machine's token daemon.

    Args:
        paths: of the run folder.
        loop: the running event loop.
        quota_ns: of grants that do not bring their own.
        on_looked: told after each look at the grants whether there is none.
        on_lost: told that the run folder has been removed: nothing can be granted any more.
    """

    def __init__(
        self,
        paths: Paths,
        loop: asyncio.AbstractEventLoop,
        *,
        quota_ns: int = QUOTA_NS,
        on_looked: OnLooked = lambda *, is_empty: None,  # noqa: ARG005  a name of the protocol
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._paths = paths
        self._loop = loop
        self._quota_ns = quota_ns
        self._on_looked = on_looked
        self._on_lost = on_lost
        self._clock = time.monotonic_ns
        self._lock = _take_lock(paths)
        self._timer = Timer()
        self._watch = FolderWatch(paths.grants)
        self._claims: dict[str, Claim] = {}
        self._gpus: dict[str, Gpu] = {}
        self._signatures: dict[Path, Signature] = {}
        self._owners = Owners(loop, self._on_owner_gone)
        self._orphans: set[str] = set()
        self._complaints: dict[str, Rate] = {}
        self._sweep()
        loop.add_reader(self._watch.fd, self._on_grants_changed)
        loop.add_reader(self._timer.fd, self._on_timer)
        self._look_at_grants()

    # ---- the grant files ----

    def _sweep(self) -> None:
        """Remove what a daemon before this one left of grants that are no more."""
        for folder in (self._paths.claims, self._paths.counters_folder, self._paths.statuses):
            for left in folder.iterdir():
                claim = left.name.removesuffix(".json") if left.suffix else left.name
                if not self._paths.grants.joinpath(f"{claim}.json").exists():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _on_grants_changed(self) -> None:
        self._watch.clear()
        if not self._paths.grants.is_dir():
            log.error("the run folder has been removed", folder=str(self._paths.root))
            self._on_lost()
            return
        self._look_at_grants()
        self._arm()

    def _look_at_grants(self) -> None:
        """Compare the folder with what is live; end and begin what differs."""
        found: dict[Path, Signature] = {}
        for entry in os.scandir(self._paths.grants):
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found[Path(entry.path)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        for path in [path for path, known in self._signatures.items() if found.get(path) != known]:
            del self._signatures[path]
            self._end(path.stem)
        self._retry_refused()
        new = sorted(found.keys() - self._signatures.keys(), key=self._was_active, reverse=True)
        for path in new:
            self._signatures[path] = found[path]
            self._begin(path)
        self._on_looked(is_empty=not self._claims)

    def _was_active(self, path: Path) -> tuple[bool, int]:
        """Sorts the grants that a daemon before this one activated first, then by age."""
        try:
            status = read_status(self._paths, path.stem)
            age = -path.stat().st_mtime_ns
        except (GrantError, FileNotFoundError):
            return False, 0
        return status is not None and status.state == "ACTIVE", age

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
            claim = Claim(self._paths, grant, loop=self._loop, clock=self._clock, events=self)
        except OSError as error:
            log.warning("claim's files cannot be made", claim=grant.claim, error=str(error))
            self._answer(grant.claim, GrantState.REFUSED, f"its files cannot be made: {error}")
            return
        self._claims[grant.claim] = claim
        self._decide(claim)

    def _decide(self, claim: Claim) -> None:
        """Activate a grant that fits beside the live ones, refuse any other."""
        live = [c.grant for c in self._claims.values() if c.state is GrantState.ACTIVE]
        if len(claim.grant.gpus) > 1:
            reason: str | None = "a claim may hold one GPU so far, this one names several"
        else:
            reason = shortfall(claim.grant, live, holder_name)
        state = GrantState.REFUSED if reason else GrantState.ACTIVE
        if state is claim.state:
            return
        log.info("grant decided", claim=claim.name, state=state.name, reason=reason or "")
        if state is GrantState.ACTIVE:
            for cell, part in enumerate(claim.grant.gpus):
                self._gpu(part.uuid).add(claim, cell)
        claim.set_state(state)
        self._answer(claim.name, state, reason or "")

    def _retry_refused(self) -> None:
        for claim in self._claims.values():
            if claim.state is GrantState.REFUSED:
                self._decide(claim)

    def _answer(self, claim: str, state: GrantState, reason: str) -> None:
        try:
            write_status(self._paths, Status(claim=claim, state=state.name, reason=reason))  # type: ignore[arg-type]
        except GrantError as error:  # the file's name is no claim's: there is nobody to answer
            log.warning("no answer possible", error=str(error))

    def _end(self, name: str) -> None:
        """A grant file is gone or another: end what it granted."""
        self._owners.forget(name)
        self._orphans.discard(name)
        self._complaints.pop(name, None)
        claim = self._claims.pop(name, None)
        if claim is None:
            return
        for part in claim.grant.gpus:
            gpu = self._gpus.get(part.uuid)
            if gpu is not None:
                gpu.remove(name)
                if gpu.is_empty:
                    del self._gpus[part.uuid]
        claim.end()
        log.info("grant ended", claim=name)

    def _gpu(self, uuid: str) -> Gpu:
        if uuid not in self._gpus:
            self._gpus[uuid] = Gpu(
                self._quota_ns,
                self._clock,
                lambda name: log.warning("holder did not drain, bypassed", claim=name, gpu=uuid),
            )
        return self._gpus[uuid]

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
        self._arm()

    # ---- what processes say (ClaimEvents) ----

    def on_want(self, claim: Claim, cell: int) -> None:
        """A launch waits at a closed gate."""
        self._gpu(claim.grant.gpus[cell].uuid).want(claim.name)
        self._arm()

    def on_drained(self, claim: Claim, cell: int, idle_ns: int) -> None:
        """The GPU was done with the claim at `idle_ns`."""
        self._gpu(claim.grant.gpus[cell].uuid).drained(claim.name, idle_ns)
        self._arm()

    def on_idle(self, claim: Claim, cell: int) -> None:
        """The claim has nothing queued."""
        self._gpu(claim.grant.gpus[cell].uuid).idle(claim.name)
        self._arm()

    def on_gone(self, claim: Claim) -> None:
        """The last connection of the claim is closed."""
        for part in claim.grant.gpus:
            self._gpu(part.uuid).gone(claim.name)
        if claim.name in self._orphans:
            # Not from within this claim's own callback: it ends the claim.
            self._loop.call_soon(self._drop, claim.name)
        self._arm()

    def on_dropped(self, claim: Claim, reason: str) -> None:
        """A connection was closed for what its process did."""
        now = self._clock()
        new = Rate(_COMPLAINTS_PER_SECOND, _COMPLAINTS_BURST, now)
        if self._complaints.setdefault(claim.name, new).allows(now):
            log.warning("connection dropped", claim=claim.name, reason=reason)

    # ---- time ----

    def _on_timer(self) -> None:
        self._timer.clear()
        now = self._clock()
        for gpu in self._gpus.values():
            deadline = gpu.deadline()
            if deadline is not None and deadline <= now:
                gpu.tick()
        self._arm()

    def _arm(self) -> None:
        deadlines = [gpu.deadline() for gpu in self._gpus.values()]
        self._timer.set(min((at for at in deadlines if at is not None), default=None))

    # ---- for people, and the end ----

    def snapshot(self) -> dict[str, Any]:
        """Who holds what now."""
        views = {uuid: gpu.views() for uuid, gpu in self._gpus.items()}
        found = []
        for claim in self._claims.values():
            of_claim = {
                uuid: members[claim.name]
                for uuid, members in views.items()
                if claim.name in members
            }
            found.extend(entries(claim, of_claim))
        return {"pid": os.getpid(), "nowNs": self._clock(), "claims": found}

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

    def answers(self) -> dict[str, Answer]:
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
        for watched in (self._timer, self._watch):
            self._loop.remove_reader(watched.fd)
            watched.close()
        os.close(self._lock)


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
