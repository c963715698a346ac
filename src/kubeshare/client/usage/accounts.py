"""Reads the accounts of a cluster, and sums them."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kubeshare.api.types.share_usage import SHARE_USAGES, ShareUsage, allocation_of, time_ns
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.usage.allocation import Allocation
from kubeshare.core.usage.report import KEYS, Row, report
from kubeshare.kube.client.errors import ForbiddenError, NotFoundError
from kubeshare.kube.conditions import micro_timestamp

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client


class AccountsError(Exception):
    """The accounts cannot be read."""

    exit_code = 3


class Usage(Struct, frozen=True, kw_only=True):
    """What was used.

    Attributes:
        by: the names of the rows' keys.
        since: from when on.
        until: when it was read.
        rows: the sums, by their keys.
        accounts: the number of accounts that there are, of whatever time.
        currency: of the costs; "" for none.
        notes: what people should know about the numbers.
    """

    by: tuple[str, ...]
    since: datetime
    until: datetime
    rows: tuple[Row, ...]
    accounts: int
    currency: str
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.notes and all(row.complete for row in self.rows)


async def read(
    client: "Client", namespace: str, by: Sequence[str], since: datetime, now: datetime
) -> Usage:
    """Sum the accounts of a namespace, or of all (``""``).

    Raises:
        AccountsError: there is no such kind, or the user may not read it.
        ApiError: the cluster cannot be read.
    """
    try:
        listed = await client.list_each(SHARE_USAGES, _account, namespace)
    except NotFoundError as error:
        words = "the KubeShare of this cluster keeps no accounts: `kubeshare install` brings them"
        raise AccountsError(words) from error
    except ForbiddenError as error:
        where = f"in namespace {namespace}" if namespace else "in all namespaces: name yours by -n"
        raise AccountsError(f"you may not read ShareUsages {where} ({error})") from error
    known = [each for each in listed.items if each is not None]
    currencies = sorted({currency for _, currency in known} - {""})
    unreadable = len(listed.items) - len(known) + len(listed.unreadable)
    notes = [f"{unreadable} ShareUsages cannot be read and are not counted"] if unreadable else []
    allocations = [allocation for allocation, _ in known]
    if len(currencies) > 1:
        notes.append(f"prices are in several currencies ({', '.join(currencies)}): no costs")
        allocations = [_without_prices(allocation) for allocation in allocations]
    rows = report(allocations, by, *(time_ns(micro_timestamp(each)) for each in (since, now)))
    return Usage(
        by=tuple(by),
        since=since,
        until=now,
        rows=tuple(rows),
        accounts=len(known),
        currency=currencies[0] if len(currencies) == 1 else "",
        notes=tuple(notes),
    )


def parse_keys(text: str) -> tuple[str, ...]:
    """Parse the value of ``--by``.

    Raises:
        InvalidValueError: a name is unknown or there twice.
    """
    keys = tuple(key.strip() for key in text.split(","))
    for key in keys:
        if key not in KEYS:
            raise InvalidValueError("--by", f'"{key}" is none of {", ".join(KEYS)}')
        if keys.count(key) > 1:
            raise InvalidValueError("--by", f"{key} is given twice")
    return keys


def _account(usage: ShareUsage) -> tuple[Allocation, str] | None:
    """The account and its currency; None if it cannot be read."""
    try:
        return allocation_of(usage), usage.status.currency
    except ValueError:
        return None


def _without_prices(allocation: Allocation) -> Allocation:
    shares = (msgspec.structs.replace(share, price_micros=None) for share in allocation.shares)
    return msgspec.structs.replace(allocation, shares=tuple(shares))
