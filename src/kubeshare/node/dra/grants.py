"""Writes this node's grant files and indexes them by claim and pod.

The grant files are the record of what is prepared on this node. They are read once at the
start; afterwards the index follows the agent's own writes, because no other program writes
grants of pods. Grants of ``kubeshare run`` are in the same folder and are ignored.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from kubeshare.node.dra.driver import ClaimReference
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedPod,
    GrantedShare,
    read_grant,
    refused_by_older_daemon,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.statuses import Status, read_status

log = structlog.get_logger(__name__)

# A pod's start waits for the daemon, which takes some milliseconds.
_FIRST_PAUSE_SECONDS = 0.001
_PAUSE_GROWTH = 1.1
_LAST_PAUSE_SECONDS = 0.025


class GrantRefusedError(Exception):
    """The token daemon refused a grant, or did not answer."""


@dataclass(frozen=True)
class PodGrant:
    """The claim and pod of a grant."""

    claim: str
    pod_namespace: str
    pod_name: str
    pod_uid: str


class Grants:
    """The grants of pods in the run folder, by claim."""

    def __init__(self, run_folder: Path) -> None:
        self._paths = Paths(run_folder)
        self._paths.make()
        self._known = {grant.claim: grant for grant in self._load()}

    def _load(self) -> list[PodGrant]:
        found = []
        for file in sorted(self._paths.grants.glob("*.json")):
            try:
                grant = read_grant(file)
            except (GrantError, OSError) as error:
                log.warning("grant cannot be read", file=str(file), error=str(error))
                continue
            if grant.pod is not None:
                pod = grant.pod
                found.append(PodGrant(grant.claim, pod.namespace, pod.name, pod.uid))
        return found

    def all(self) -> list[PodGrant]:
        """All grants of pods."""
        return list(self._known.values())

    def read(self, claim: str) -> PodGrant | None:
        """A claim's grant, or None."""
        return self._known.get(claim)

    def of_pod(self, pod_uid: str) -> list[str]:
        """The claims of a pod that have a grant."""
        return [grant.claim for grant in self._known.values() if grant.pod_uid == pod_uid]

    def write(
        self, claim: ClaimReference, pod_name: str, pod_uid: str, gpus: list[GrantedShare]
    ) -> None:
        """Write the grant of a pod's shares; the daemon decides whether it becomes active.

        Raises:
            ValueError: the grant is invalid.
            OSError: the file cannot be written.
        """
        pod = GrantedPod(namespace=claim.namespace, name=pod_name, uid=pod_uid)
        grant = Grant(version=GRANT_VERSION, claim=claim.uid, gpus=tuple(gpus), pod=pod)
        # Indexed first: the index never lacks a file on disk.
        self._known[claim.uid] = PodGrant(claim.uid, claim.namespace, pod_name, pod_uid)
        write_grant(self._paths, grant)

    def remove(self, claim: str) -> None:
        """End a grant, if there is one.

        Raises:
            ValueError: that is not a valid name of a claim.
            OSError: the file cannot be removed.
        """
        remove_grant(self._paths, claim)
        self._known.pop(claim, None)

    async def wait_active(self, claim: str, seconds: float) -> None:
        """Wait until the daemon has activated a grant and created the claim's folder.

        A daemon of an earlier version than this agent may not understand the grant. Its successor
        reads all grants when it starts, so an upgrade in progress is waited for.

        Raises:
            GrantRefusedError: the daemon refuses it, or does not answer in time.
        """
        pause = _FIRST_PAUSE_SECONDS
        status: Status | None = None
        try:
            async with asyncio.timeout(seconds):
                while (status := self._status(claim)) is None or _awaits_upgrade(status):
                    await asyncio.sleep(pause)
                    pause = min(_LAST_PAUSE_SECONDS, pause * _PAUSE_GROWTH)
        except TimeoutError as error:
            raise GrantRefusedError(_no_answer(status, seconds)) from error
        if status.state != "ACTIVE":
            raise GrantRefusedError(f"the token daemon says {status.state}: {status.reason}")

    def _status(self, claim: str) -> Status | None:
        try:
            return read_status(self._paths, claim)
        except (GrantError, OSError):
            return None

    def claim_folder(self, claim: str) -> Path:
        """The folder with the claim's page and socket, which the daemon creates."""
        return self._paths.claim(claim)

    def counters_file(self, claim: str) -> Path:
        """The file that the claim's processes write, which the daemon creates."""
        return self._paths.counters(claim)


def _awaits_upgrade(status: Status) -> bool:
    return status.state == "REFUSED" and refused_by_older_daemon(status.reason)


def _no_answer(status: Status | None, seconds: float) -> str:
    """Why no grant became active in time, and what to do; ``status`` is the last answer."""
    if status is None:
        return (
            f"the token daemon of this node does not answer (waited {seconds:.0f} s): "
            "is the pod kubeshare-token-daemon running here?"
        )
    return (
        f"the token daemon of this node is older than its node agent ({status.reason}), and was "
        f"not upgraded within {seconds:.0f} s: is the rollout of the DaemonSet "
        "kubeshare-token-daemon complete?"
    )
