"""Status files: the token daemon's answers to grants."""

import time
from typing import Literal

import msgspec

from kubeshare.tokens.files.run_folder import Paths, read_document, write_whole

State = Literal["ACTIVE", "REFUSED", "REVOKED"]


class DaemonMissingError(Exception):
    """No token daemon answered in time."""

    exit_code = 3


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's answer to a grant: `state`, and why."""

    claim: str
    state: State
    reason: str = ""


def write_status(paths: Paths, status: Status) -> None:
    """Write the daemon's answer to a grant."""
    write_whole(paths.status(status.claim), msgspec.json.encode(status))


def read_status(paths: Paths, claim: str) -> Status | None:
    """Read the daemon's answer; None as long as there is none.

    Raises:
        GrantError: the file is not a status.
    """
    try:
        return read_document(paths.status(claim), Status)
    except FileNotFoundError:
        return None


def wait_status(paths: Paths, claim: str, timeout_s: float) -> Status:
    """Wait for the daemon's answer to a grant.

    Raises:
        DaemonMissingError: there is none after `timeout_s` seconds.
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
