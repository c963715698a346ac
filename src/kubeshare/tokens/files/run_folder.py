"""The run folder of node agent, token daemon and containers.

::

    RUN/grants/CLAIM.json          who may use which GPU: the node agent or `kubeshare run`
                                   writes it and replaces it by rename
    RUN/claims/CLAIM/{page,socket} made by the daemon, mounted read-only in containers
    RUN/counters/CLAIM             made by the daemon, mounted writable in containers
    RUN/tallies/CLAIM              the daemon's counts, which survive its restart
    RUN/status/CLAIM.json          the daemon's answer to the grant
    RUN/degraded.json              what the node agent says is wrong with GPUs, for people
    RUN/control                    the daemon's socket for `kubeshare top` and the node agent
    RUN/daemon.lock, daemon.log    one daemon a folder
    RUN/boot                       the boot of the node; the node agent writes it once it has
                                   mounted a file system over the folder or decided not to
    RUN/unmounted                  the node agent has unmounted this file system

CLAIM is the name of a grant: of a pod it is the uid of its ResourceClaim, followed by `.SHARE`
where the containers of the pod use different shares. Removing the grant file ends the grant;
the daemon then removes its other files.
"""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

RUN_FOLDER_ENV: Final = "KUBESHARE_RUN"

_CLAIM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_FILE_SIZE_MAX = 64 * 1024
_Document = TypeVar("_Document")


class GrantError(ValueError):
    """A grant or a status is invalid; the message names the file and the field."""


class Paths:
    """The paths of one run folder, whose root is `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.grants = root / "grants"
        self.claims = root / "claims"
        self.counters_folder = root / "counters"
        self.statuses = root / "status"
        self.tallies = root / "tallies"
        self.degraded = root / "degraded.json"
        self.control = root / "control"
        self.lock = root / "daemon.lock"
        self.log = root / "daemon.log"
        self.boot = root / "boot"
        self.unmounted = root / "unmounted"

    @property
    def made(self) -> tuple[Path, ...]:
        """The folders in which the daemon creates the files of a claim."""
        return self.claims, self.counters_folder, self.tallies, self.statuses

    def has_grants(self) -> bool:
        """Whether there is a grant file."""
        return any(self.grants.glob("*.json"))

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
        """The daemon's counts of a claim."""
        return self.tallies / check_claim(claim)

    def status(self, claim: str) -> Path:
        """The daemon's answer to the claim's grant."""
        return self.statuses / f"{check_claim(claim)}.json"

    def make(self) -> None:
        """Create the folders, for their owner only: containers see what is mounted into them.

        Raises:
            PermissionError: another user owns the run folder.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.root.stat().st_uid != os.geteuid():
            raise PermissionError(
                f"{self.root} belongs to another user: name a folder of yours in {RUN_FOLDER_ENV}"
            )
        for folder in (self.grants, *self.made):
            folder.mkdir(mode=0o700, exist_ok=True)


def default_run_folder() -> Path:
    """The run folder of this user: `KUBESHARE_RUN`, root's, the login's, or one in memory."""
    if named := os.environ.get(RUN_FOLDER_ENV):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/run/kubeshare")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "kubeshare"
    return Path(f"/dev/shm/kubeshare-{os.geteuid()}")  # noqa: S108  `make` checks the owner


def check_claim(claim: str) -> str:
    """Return the claim's name if it is a valid file name.

    Raises:
        GrantError: it is not.
    """
    if not _CLAIM.fullmatch(claim):
        raise GrantError(
            f"claim {claim[:140]!r} is no name: letters, digits, '.', '_', '-', at most 128"
        )
    return claim


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


def read_document(
    path: Path, document: type[_Document], upgrade: Callable[[Any], Any] = lambda data: data
) -> _Document:
    """Decode a JSON file of at most 64 KiB, after `upgrade` brought it to the present format.

    Raises:
        GrantError: the file is too large, or is not such a document.
        FileNotFoundError: there is no such file.
    """
    with path.open("rb") as file:
        data = file.read(_FILE_SIZE_MAX + 1)
    if len(data) > _FILE_SIZE_MAX:
        raise GrantError(f"{path.name}: more than {_FILE_SIZE_MAX} bytes")
    try:
        return msgspec.convert(upgrade(msgspec.json.decode(data)), document)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise GrantError(f"{path.name}: {error}") from None
