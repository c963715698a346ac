"""The run folder: grant files in, pages, sockets and statuses out.

::

    RUN/grants/CLAIM.json          who may use which GPU: written by the node agent
                                   or `kubeshare run`, whole, by rename
    RUN/claims/CLAIM/{page,socket} made by the daemon, mounted read-only in containers
    RUN/counters/CLAIM             made by the daemon, mounted writable
    RUN/tallies/CLAIM              what the daemon counts, outlives it
    RUN/status/CLAIM.json          the daemon's answer to the grant
    RUN/control                    the daemon's door for `kubeshare top`
    RUN/daemon.lock, daemon.log    one daemon a folder

Removing the grant file ends the grant, and the daemon removes the rest.
"""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from kubeshare.core.units import MICROS
from kubeshare.tokens.wire.protocol import CELLS_MAX

GRANT_VERSION: Final = 1
RUN_FOLDER_ENV: Final = "KUBESHARE_RUN"

_CLAIM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_QUOTA_BOUNDS_NS = (5_000_000, 10_000_000_000)
_FILE_SIZE_MAX = 64 * 1024

State = Literal["ACTIVE", "REFUSED", "REVOKED"]
_Document = TypeVar("_Document")


class GrantError(ValueError):
    """A grant is not acceptable as it is written; the message says what and where."""


class DaemonMissingError(Exception):
    """No token daemon answered in time."""

    exit_code = 3


# As in the files of the first version, so that grants outlive an upgrade.
_GPU_FIELDS: Final = {
    "memory_total_bytes": "memoryTotal",
    "request_micros": "request",
    "limit_micros": "limit",
    "memory_bytes": "memory",
}


class GrantedShare(
    msgspec.Struct, frozen=True, kw_only=True, rename=_GPU_FIELDS, omit_defaults=True
):
    """A part of one GPU.

    Attributes:
        uuid: as NVML says it, `GPU-…`.
        memory_total_bytes: bytes of the physical GPU.
        request_micros: micros.
        limit_micros: micros.
        memory_bytes: bytes.
        model: for people.
    """

    uuid: str
    memory_total_bytes: int
    request_micros: int
    limit_micros: int
    memory_bytes: int
    model: str = ""

    def __post_init__(self) -> None:
        if not _GPU_UUID.fullmatch(self.uuid):
            raise ValueError(f"uuid {self.uuid!r} is not that of a whole GPU, GPU-8-4-4-4-12")
        if not 0 <= self.request_micros <= self.limit_micros <= MICROS:
            raise ValueError(
                f"request {self.request_micros} and limit {self.limit_micros}: "
                f"not in order within 0 and {MICROS}"
            )
        if not 0 < self.memory_bytes <= self.memory_total_bytes < 2**63:
            raise ValueError(
                f"memory {self.memory_bytes} is not within the GPU's "
                f"{self.memory_total_bytes} bytes"
            )


class GrantedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that holds a grant."""

    namespace: str
    name: str
    uid: str


class Owner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The process of `kubeshare run`; when it is gone, so is the grant.

    Attributes:
        pid: on this machine.
        start_time: clock ticks since boot (`/proc/PID/stat`), against reuse of the pid.
    """

    pid: int
    start_time: int


class Grant(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What one claim may use.

    Attributes:
        claim: the claim's name: letters, digits, `.`, `_`, `-`, at most 128, not first a dot.
        gpus: one entry a GPU, in the order of the page's cells.
        pod: who holds it in a cluster.
        container: which of the pod's containers.
        owner: the process on whose life the grant hangs.
        quota_ns: the longest time between two decisions about this claim; None: the daemon's.
    """

    version: int
    claim: str
    gpus: tuple[GrantedShare, ...]
    pod: GrantedPod | None = None
    container: str | None = None
    owner: Owner | None = None
    quota_ns: int | None = None

    def __post_init__(self) -> None:
        check_claim(self.claim)
        if self.version != GRANT_VERSION:
            raise ValueError(f"version {self.version} is not known, {GRANT_VERSION} is")
        if not self.gpus:
            raise ValueError("gpus is empty")
        if len(self.gpus) > CELLS_MAX:
            raise ValueError(f"gpus names {len(self.gpus)}, a claim has at most {CELLS_MAX}")
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise ValueError("gpus names a GPU twice")
        low, high = _QUOTA_BOUNDS_NS
        if self.quota_ns is not None and not low <= self.quota_ns <= high:
            raise ValueError(f"quotaNs {self.quota_ns} is not within 5 ms and 10 s")

    @property
    def holder(self) -> str:
        """The holder's name for people."""
        if self.pod is None:
            return self.claim
        container = f"/{self.container}" if self.container else ""
        return f"{self.pod.namespace}/{self.pod.name}{container}"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's answer to a grant: `state`, and why."""

    claim: str
    state: State
    reason: str = ""


class Paths:
    """The places in one run folder.

    Args:
        root: the run folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.grants = root / "grants"
        self.claims = root / "claims"
        self.counters_folder = root / "counters"
        self.statuses = root / "status"
        self.tallies = root / "tallies"
        self.control = root / "control"
        self.lock = root / "daemon.lock"
        self.log = root / "daemon.log"

    @property
    def made(self) -> tuple[Path, ...]:
        """The folders in which the daemon makes what belongs to a claim."""
        return self.claims, self.counters_folder, self.tallies, self.statuses

    def grant(self, claim: str) -> Path:
        """The grant file of a claim."""
        return self.grants / f"{check_claim(claim)}.json"

    def claim(self, claim: str) -> Path:
        """The folder with the claim's page and socket."""
        return self.claims / check_claim(claim)

    def counters(self, claim: str) -> Path:
        """The file that the claim's processes write."""
        return self.counters_folder / check_claim(claim)

    def tally(self, claim: str) -> Path:
        """What the daemon counts of a claim."""
        return self.tallies / check_claim(claim)

    def status(self, claim: str) -> Path:
        """The daemon's answer."""
        return self.statuses / f"{check_claim(claim)}.json"

    def make(self) -> None:
        """Make the folders. What a container may see is mounted; nobody else looks in.

        Raises:
            PermissionError: the run folder belongs to somebody else.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.root.stat().st_uid != os.geteuid():
            raise PermissionError(
                f"{self.root} belongs to another user: name a folder of yours in {RUN_FOLDER_ENV}"
            )
        for folder in (self.grants, *self.made):
            folder.mkdir(mode=0o700, exist_ok=True)


def default_run_folder() -> Path:
    """The run folder of this user: `KUBESHARE_RUN`, root's, the session's, or one in memory."""
    if named := os.environ.get(RUN_FOLDER_ENV):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/run/kubeshare")
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(session) / "kubeshare"
    return Path(f"/dev/shm/kubeshare-{os.geteuid()}")  # noqa: S108  `make` checks whose it is


def check_claim(claim: str) -> str:
    """Return the name when it can be a file's.

    Raises:
        GrantError: it cannot.
    """
    if not _CLAIM.fullmatch(claim):
        raise GrantError(
            f"claim {claim[:140]!r} is no name: letters, digits, '.', '_', '-', at most 128"
        )
    return claim


def write_grant(paths: Paths, grant: Grant) -> None:
    """Give a claim its part of a GPU; the daemon answers in the claim's status file."""
    paths.make()
    write_whole(paths.grant(grant.claim), msgspec.json.encode(grant))


def remove_grant(paths: Paths, claim: str) -> None:
    """End a grant; nothing happens when there is none."""
    paths.grant(claim).unlink(missing_ok=True)


def read_grant(path: Path) -> Grant:
    """Read a grant file.

    Raises:
        GrantError: it is not a grant, or not the one that its name says.
        FileNotFoundError: it is gone.
    """
    grant = _read(path, Grant)
    if f"{grant.claim}.json" != path.name:
        raise GrantError(f"{path.name}: it is the grant of claim {grant.claim}")
    return grant


def write_status(paths: Paths, status: Status) -> None:
    """The daemon's answer to a grant."""
    write_whole(paths.status(status.claim), msgspec.json.encode(status))


def read_status(paths: Paths, claim: str) -> Status | None:
    """The daemon's answer; None when there is none yet."""
    try:
        return _read(paths.status(claim), Status)
    except FileNotFoundError:
        return None


def wait_status(paths: Paths, claim: str, timeout_s: float) -> Status:
    """Wait for the daemon's answer to a grant.

    Raises:
        DaemonMissingError: it did not come in time.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while True:
        status = read_status(paths, claim)
        if status is not None:
            return status
        if time.monotonic() > deadline:
            raise DaemonMissingError(
                f"the token daemon of {paths.root} did not answer within {timeout_s:g} s: "
                f"see {paths.log}, or the log of the pod that runs it"
            )
        time.sleep(pause_s)
        pause_s = min(0.05, pause_s * 1.5)


def process_start_time(pid: int) -> int | None:
    """Clock ticks from boot to a process's start; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses, and may itself have any of them.
    return int(stat.rpartition(")")[2].split()[19])


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file by rename, so that a reader sees all of the old or all of the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _read(path: Path, document: type[_Document]) -> _Document:
    with path.open("rb") as file:
        data = file.read(_FILE_SIZE_MAX + 1)
    if len(data) > _FILE_SIZE_MAX:
        raise GrantError(f"{path.name}: more than {_FILE_SIZE_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=document)
    except msgspec.MsgspecError as error:
        raise GrantError(f"{path.name}: {error}") from None
