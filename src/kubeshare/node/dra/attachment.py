"""Decides which grants a claim has, and which containers use them.

A demand in the short form has one grant, which each container of its claim uses; the grant
has the name of the claim. Of several different shares, each group (those that a container has
in common, :func:`kubeshare.core.demand.groups_of`) has a grant ``CLAIM.SHARE``, after the first
name of its shares. A container sees the GPUs of its own shares only.

Which container uses which share follows from the pod's annotations, or from the limits of its
containers. They authorize nothing: what may be used follows from the holders, and each of them is
in exactly one grant.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from kubeshare.core.demand import Share, groups_of
from kubeshare.dialects.containers import VGPU_RESOURCE
from kubeshare.tokens.files.grants import GrantedShare


class Use(Struct, frozen=True):
    """What the container of one request uses.

    Attributes:
        grant: the name of its grant.
        gpus: the UUIDs of its GPUs.
    """

    grant: str
    gpus: tuple[str, ...]


class Attachment(Struct, frozen=True):
    """What one claim is given.

    Attributes:
        grants: name of each grant → its shares, each on another GPU.
        uses: request of the claim → what its container uses.
    """

    grants: Mapping[str, tuple[GrantedShare, ...]]
    uses: Mapping[str, Use]


def grant_name(claim: str, group: str) -> str:
    """The name of the grant of a group of shares; a claim's uid has no dot."""
    return f"{claim}.{group}"


def claim_of(grant: str) -> str:
    """The claim that a pod's grant belongs to, from the name of the grant."""
    return grant.partition(".")[0]


def of_one_share(claim: str, shares: Sequence[GrantedShare], requests: Iterable[str]) -> Attachment:
    """The attachment of a demand in the short form: each container uses all of it."""
    use = Use(claim, tuple(share.uuid for share in shares))
    return Attachment({claim: tuple(shares)}, dict.fromkeys(requests, use))


def of_several_shares(
    claim: str,
    shares: Sequence[GrantedShare],
    listed: Collection[Share],
    containers: Mapping[str, str],
) -> Attachment:
    """The attachment of a demand of different shares.

    Args:
        claim: the uid of the claim.
        shares: the shares that the holders grant, each with its name.
        listed: the shares that the pod lists.
        containers: request of the claim → the container that made it.

    Raises:
        ValueError: the annotations do not fit the holders or the containers.
    """
    _check_same(shares, listed)
    group = groups_of(listed)
    grants = {
        grant_name(claim, name): tuple(share for share in shares if group[share.share] == name)
        for name in sorted(set(group.values()))
    }
    for granted in grants.values():
        _check_apart(granted)
    uses = {}
    for request, container in containers.items():
        used = {one.name for one in listed if not one.containers or container in one.containers}
        if not used:
            raise ValueError(
                f"container {container} asks for {VGPU_RESOURCE} and uses none of the shares "
                f"{', '.join(sorted(group))}: name it in the containers of one, or let it not ask"
            )
        gpus = tuple(share.uuid for share in shares if share.share in used)
        uses[request] = Use(grant_name(claim, group[min(used)]), gpus)
    return Attachment(grants, uses)


def _check_same(shares: Iterable[GrantedShare], listed: Iterable[Share]) -> None:
    """Check that the holders are those of the listed shares."""
    held = Counter(share.share for share in shares)
    if held != Counter({share.name: share.count for share in listed}):
        raise ValueError(
            f"its vGPUs have holders for the shares {_numbered(held)}, and the pod lists "
            f"{_numbered({share.name: share.count for share in listed}) or 'none'}: they must "
            "not change after the pod was placed, so create it again"
        )


def _check_apart(granted: Iterable[GrantedShare]) -> None:
    """Check that no two shares of a group are on one GPU."""
    on: dict[str, str] = {}
    for share in granted:
        other = on.setdefault(share.uuid, share.share)
        if other != share.share:
            raise ValueError(
                f"its shares {other} and {share.share} are both on GPU {share.uuid}, and a "
                "container must not use both: its annotations were changed after it was placed"
            )


def _numbered(counts: Mapping[str, int]) -> str:
    """``a, b (2)`` for one GPU of a share and two of another."""
    return ", ".join(
        f"{name or 'without a name'}" + f" ({count})" * (count > 1)
        for name, count in sorted(counts.items())
    )
