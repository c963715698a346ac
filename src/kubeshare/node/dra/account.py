"""Accounts for what a grant has used until now.

The token daemon's tallies are read before the grant is removed, because the daemon removes
them with it. They are complete when the processes of the grant have ended, as they have when
the kubelet unprepares a claim. A revoked grant may have processes; its account lacks their
last lease.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from kubeshare.tokens.files import tallies
from kubeshare.tokens.files.grants import Grant, GrantedPod
from kubeshare.tokens.files.run_folder import Paths


class UsedShare(Struct, frozen=True, kw_only=True):
    """What was granted of one GPU, and what was used.

    Attributes:
        uuid: of the GPU.
        share: name of the share; "" for the only one.
        request_micros: the granted share of its time, in millionths.
        memory_bytes: the granted memory.
        model: of the GPU, for people.
        used_ns: GPU time that was charged; None if the token daemon has no count of it.
    """

    uuid: str
    share: str
    request_micros: int
    memory_bytes: int
    model: str
    used_ns: int | None


class Account(Struct, frozen=True, kw_only=True):
    """What a grant has used until now.

    Attributes:
        grant: its name, unique for ever.
        pod: its holder.
        written_ns: when the grant was written, in ns since 1970.
        has_gaps: whether there was no token daemon for a time, in which no use was counted.
        shares: one for each GPU.
    """

    grant: str
    pod: GrantedPod
    written_ns: int
    has_gaps: bool
    shares: tuple[UsedShare, ...]


OnEnded: TypeAlias = Callable[[Account], None]
"""Receives each account at least once, more than once after a crash; it must not raise."""


def ignore(_account: Account) -> None:
    """Do nothing with an account; it is in the log."""


def account_for(paths: Paths, grant: Grant, pod: GrantedPod) -> Account:
    """The account of a pod's grant until now.

    Raises:
        OSError: the file of the grant is gone.
    """
    counts = tallies.read(paths.tally(grant.claim))
    used = [tally.charged_ns for tally in counts] if len(counts) == len(grant.gpus) else None
    return Account(
        grant=grant.claim,
        pod=pod,
        written_ns=paths.grant(grant.claim).stat().st_mtime_ns,
        has_gaps=any(tally.gaps for tally in counts),
        shares=tuple(
            UsedShare(
                uuid=share.uuid,
                share=share.share,
                request_micros=share.request_micros,
                memory_bytes=share.memory_bytes,
                model=share.model,
                used_ns=None if used is None else used[cell],
            )
            for cell, share in enumerate(grant.gpus)
        ),
    )
