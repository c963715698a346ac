"""Writes this node's grant files and indexes them by claim and pod.

A claim has one grant, or one for each group of its shares (:mod:`.attachment`); they come and
go together. The grant files are the record of what is prepared on this node. They are read
once at the start; afterwards the index follows the agent's own writes, because no other
program writes grants of pods. Grants of ``kubeshare run`` are in the same folder and are
ignored.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import structlog

from kubeshare.node.dra.account import Account, account_for
from kubeshare.node.dra.attachment import claim_of
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
from kubeshare.tokens.files.run_folder import GrantError, Paths, check_claim
from kubeshare.tokens.files.statuses import Status, read_status
from kubeshare.tokens.wire.page import read_page

log = structlog.get_logger(__name__)

# A pod's start waits for the daemon, which takes some milliseconds.
_FIRST_PAUSE_SECONDS = 0.001
_PAUSE_GROWTH = 1.1
_LAST_PAUSE_SECONDS = 0.025


class GrantRefusedError(Exception):
    """The token daemon refused a grant, or did not answer."""


@dataclass(frozen=True)
class PodGrant:
    """The grants of a claim, and their pod.

    Attributes:
        claim: its uid.
        pod_namespace: of the pod.
        pod_name: of the pod.
        pod_uid: of the pod.
        names: the names of the grants, sorted.
        quota_ns: the time quota of the grants; None: the token daemon's.
    """

    claim: str
    pod_namespace: str
    pod_name: str
    pod_uid: str
    names: tuple[str, ...]
    quota_ns: int | None = None


class Grants:
    """The grants of pods in the run folder, by claim (uid).

    Attributes:
        unreadable: claim → the names of its grants, of the claims of which no grant could be read
            at the start. The claim of a command of `kubeshare run` may be among them.
    """

    def __init__(self, run_folder: Path) -> None:
        self._paths = Paths(run_folder)
        self._paths.make()
        self.unreadable: dict[str, list[str]] = {}
        self._known = self._load()

    def _load(self) -> dict[str, PodGrant]:
        found: dict[str, PodGrant] = {}
        for file in sorted(self._paths.grants.glob("*.json")):
            grant = _read(file)
            if grant is None:
                self.unreadable.setdefault(claim_of(file.stem), []).append(file.stem)
                continue
            if grant.pod is None:
                continue
            pod, claim = grant.pod, claim_of(grant.claim)
            first = PodGrant(claim, pod.namespace, pod.name, pod.uid, (), grant.quota_ns)
            known = found.get(claim, first)
            found[claim] = replace(known, names=tuple(sorted((*known.names, grant.claim))))
        for claim in found.keys() & self.unreadable.keys():
            names = (*found[claim].names, *self.unreadable.pop(claim))
            found[claim] = replace(found[claim], names=tuple(sorted(names)))
        return found

    def __contains__(self, claim: str) -> bool:
        """Whether a claim has a grant, be it one that cannot be read."""
        return claim in self._known or claim in self.unreadable

    def all(self) -> list[PodGrant]:
        """The grants of all claims."""
        return list(self._known.values())

    def claims(self) -> set[str]:
        """The claims of all grants on disk, be they readable or not."""
        return {*self._known, *self.unreadable}

    def read(self, claim: str) -> PodGrant | None:
        """A claim's grants, or None if it has none."""
        return self._known.get(claim)

    def of_pod(self, pod_uid: str) -> list[str]:
        """The claims of a pod that have grants."""
        return [grant.claim for grant in self._known.values() if grant.pod_uid == pod_uid]

    def shares(self, name: str) -> tuple[GrantedShare, ...]:
        """The shares of a grant; empty if its file is gone or invalid."""
        grant = _read(self._paths.grant(name))
        return () if grant is None else grant.gpus

    def accounts(self, names: Iterable[str]) -> list[Account]:
        """What grants have used until now; none for one that cannot be read."""
        found = []
        for name in names:
            grant = _read(self._paths.grant(name))
            if grant is not None and grant.pod is not None:
                with suppress(OSError):
                    found.append(account_for(self._paths, grant, grant.pod))
        return found

    def write(
        self,
        claim: ClaimReference,
        pod_name: str,
        pod_uid: str,
        grants: Mapping[str, Sequence[GrantedShare]],
        quota_ns: int | None = None,
    ) -> None:
        """Write the grants of a claim; the daemon decides whether they become active.

        Args:
            claim: the claim.
            pod_name: of its pod.
            pod_uid: of its pod.
            grants: name of each grant → its shares.
            quota_ns: their time quota; None: the token daemon's.

        Raises:
            ValueError: a grant is invalid; none is written.
            OSError: a file cannot be written.
        """
        pod = GrantedPod(namespace=claim.namespace, name=pod_name, uid=pod_uid)
        documents = [
            Grant(version=GRANT_VERSION, claim=name, gpus=tuple(gpus), pod=pod, quota_ns=quota_ns)
            for name, gpus in grants.items()
        ]
        # Indexed first: the index never lacks a file on disk.
        names = tuple(sorted(grants))
        self._known[claim.uid] = PodGrant(
            claim.uid, claim.namespace, pod_name, pod_uid, names, quota_ns
        )
        self.unreadable.pop(claim.uid, None)
        for document in documents:
            write_grant(self._paths, document)

    def set_quota(self, claim: str, quota_ns: int | None) -> None:
        """Give the grants of a claim another time quota; the daemon changes them as they run.

        Raises:
            OSError: a file cannot be written.
        """
        known = self._known[claim]
        if known.quota_ns == quota_ns:
            return
        for name in known.names:
            grant = _read(self._paths.grant(name))
            if grant is not None:
                write_grant(self._paths, msgspec.structs.replace(grant, quota_ns=quota_ns))
        self._known[claim] = replace(known, quota_ns=quota_ns)

    def remove(self, claim: str) -> None:
        """End the grants of a claim, if there are any, among them those that cannot be read.

        Raises:
            ValueError: that is not a valid name of a claim.
            OSError: a file cannot be removed.
        """
        check_claim(claim)
        for file in self._paths.grants.glob("*.json"):
            if claim_of(file.stem) == claim:
                remove_grant(self._paths, file.stem)
        self._known.pop(claim, None)
        self.unreadable.pop(claim, None)

    def remove_some(self, claim: str, names: Collection[str]) -> None:
        """End some of the grants of a claim; the others stay.

        Raises:
            OSError: a file cannot be removed.
        """
        for name in names:
            remove_grant(self._paths, name)
        known = self._known[claim]
        left = tuple(name for name in known.names if name not in names)
        self._known[claim] = replace(known, names=left)

    async def wait_active(self, name: str, seconds: float) -> None:
        """Wait until the daemon has activated a grant and created its folder.

        A daemon of an earlier version than this agent may not understand the grant. Its successor
        reads all grants when it starts, so an upgrade in progress is waited for.

        Raises:
            GrantRefusedError: the daemon refuses it, or does not answer in time.
        """
        pause = _FIRST_PAUSE_SECONDS
        status: Status | None = None
        try:
            async with asyncio.timeout(seconds):
                while (status := self._status(name)) is None or _awaits_upgrade(status):
                    await asyncio.sleep(pause)
                    pause = min(_LAST_PAUSE_SECONDS, pause * _PAUSE_GROWTH)
        except TimeoutError as error:
            raise GrantRefusedError(_no_answer(status, seconds)) from error
        if status.state != "ACTIVE":
            raise GrantRefusedError(f"the token daemon says {status.state}: {status.reason}")

    def _status(self, name: str) -> Status | None:
        try:
            return read_status(self._paths, name)
        except (GrantError, OSError):
            return None

    def claim_folder(self, name: str) -> Path:
        """The folder with the page and socket of a grant, which the daemon creates."""
        return self._paths.claim(name)

    def gpus_of_page(self, name: str) -> tuple[str, ...]:
        """The GPUs of a grant by its page, without the grant's file; empty if none can be read."""
        try:
            page = read_page(self._paths.claims / name / "page")
        except (OSError, ValueError):
            return ()
        return () if page is None else tuple(share.uuid for share in page.shares)

    def counters_file(self, name: str) -> Path:
        """The file that the processes of a grant write, which the daemon creates."""
        return self._paths.counters(name)


def _read(file: Path) -> Grant | None:
    try:
        return read_grant(file)
    except (GrantError, OSError) as error:
        log.warning("grant cannot be read", file=str(file), error=str(error))
        return None


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
