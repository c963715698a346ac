"""Narrow structs of ``kubeshare.nthu/v1`` ShareUsage, as in ``manifests/crds``."""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from kubeshare.api.types.constants import GROUP
from kubeshare.core.usage.allocation import AllocatedShare, Allocation
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Resource

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UsedShare(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was granted of one GPU and used of it; see :class:`AllocatedShare`.

    ``share`` is the name of the share in its demand; "" for the only one.
    """

    uuid: str
    share: str = ""
    model: str = ""
    request_micros: int = 0
    memory_bytes: int = 0
    exclusive: bool = False
    used_ns: int = 0
    price_micros: int | None = None


class ShareUsageStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The account of one grant, from when it was made.

    ``duration_ns`` is measured by a clock that is never set; ``observed_at`` is ``started_at``, by
    the node's wall clock, and that. ``complete`` says that nothing is missing until then.
    """

    node_name: str
    grant: str
    pod: str
    pod_uid: str = ""
    owner: str = ""
    group: str = ""
    started_at: str
    observed_at: str
    duration_ns: int = 0
    ended: bool = False
    complete: bool = False
    currency: str = ""
    shares: tuple[UsedShare, ...] = ()


class ShareUsage(Struct, frozen=True, kw_only=True):
    """What one grant of a pod reserved and used."""

    metadata: ObjectMeta
    status: ShareUsageStatus


SHARE_USAGES: Final = Resource(GROUP, "v1", "shareusages", "ShareUsage").into(ShareUsage)


def allocation_of(usage: ShareUsage) -> Allocation:
    """The account of an object.

    Raises:
        ValueError: a time in it is none.
    """
    status = usage.status
    start_ns = time_ns(status.started_at)
    return Allocation(
        namespace=usage.metadata.namespace,
        pod=status.pod,
        owner=status.owner,
        group=status.group,
        node=status.node_name,
        start_ns=start_ns,
        end_ns=start_ns + status.duration_ns,
        ended=status.ended,
        complete=status.complete,
        shares=tuple(
            AllocatedShare(
                uuid=share.uuid,
                model=share.model,
                request_micros=share.request_micros,
                memory_bytes=share.memory_bytes,
                exclusive=share.exclusive,
                used_ns=share.used_ns,
                price_micros=share.price_micros,
            )
            for share in status.shares
        ),
    )


def time_ns(text: str) -> int:
    """A time as the API server writes it, in ns since 1970.

    Raises:
        ValueError: it is none, or has no zone.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def time_text(at_ns: int) -> str:
    """The opposite of :func:`time_ns`, to the microsecond."""
    at = _EPOCH + timedelta(microseconds=at_ns // 1000)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
