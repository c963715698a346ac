"""Follows what the grants of this node use, to their end.

Each change of an account is on disk before what it was read from is removed. So an account misses
nothing when a program crashes; when the machine does, it misses what came after its last
checkpoint, and says so (``complete: false``).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from kubeshare.api.configuration import UsageConfiguration
from kubeshare.api.types.share_usage import ShareUsageStatus, UsedShare, time_ns, time_text
from kubeshare.api.types.v1 import Holder
from kubeshare.dialects.requester.groups import MAX_LENGTH, service_of
from kubeshare.node import boot
from kubeshare.node.dra.account import Account
from kubeshare.node.dra.grants import Grants
from kubeshare.node.node_view import NodeView
from kubeshare.node.usage.records import Record, RecordFolder

CHECKPOINT_SECONDS: Final = 60.0
"""How often the accounts of present grants are written to disk."""
MOST_RECORDS: Final = 10_000
"""Accounts that wait for the API server at most; the oldest of those that have ended are lost."""

_POD_LENGTH: Final = 200
"""Characters of a pod's name in the name of its account, which has at most 253."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class NodeClock:
    """The clocks of a node.

    Attributes:
        wall_ns: ns since 1970.
        elapsed_ns: ns since the boot; nobody sets it.
        boot: identifies the boot.
    """

    wall_ns: Callable[[], int] = time.time_ns
    elapsed_ns: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    boot: Callable[[], str] = boot.current


class UsageAccounts:
    """The accounts of this node's grants.

    Args:
        view: this node's VGPUs and pods.
        grants: the grants on disk.
        folder: the accounts on disk.
        configuration: the prices.
        clock: of this node.
    """

    def __init__(
        self,
        view: NodeView,
        grants: Grants,
        folder: RecordFolder,
        configuration: Callable[[], UsageConfiguration],
        clock: NodeClock,
    ) -> None:
        self._view = view
        self._grants = grants
        self._folder = folder
        self._configuration = configuration
        self._clock = clock
        self._boot = clock.boot()
        self._records = {record.name: record for record in folder.read_all()}
        self._open = {
            record.status.grant: name
            for name, record in self._records.items()
            if not record.status.ended
        }
        self._handlers: list[Callable[[str], None]] = []
        self._lost = Counter(
            "kubeshare_node_usage_records_lost",
            "Accounts of ended grants that never reached the API server",
            registry=None,
        )

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metric for collection."""
        registry.register(self._lost)

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call ``handler`` with the name of each account that begins or ends."""
        self._handlers.append(handler)

    def read(self, name: str) -> Record | None:
        """The account of this name, if the API server does not have its end."""
        return self._records.get(name)

    def start(self, grants: Iterable[str]) -> None:
        """Open an account for each of these grants that has none."""
        for account in self._grants.accounts(set(grants) - self._open.keys()):
            self._save(self._opened(account))

    def end(self, account: Account) -> None:
        """Close the account of a grant that is about to be removed."""
        name = self._open.get(account.grant)
        record = self._opened(account) if name is None else self._records[name]
        observed = self._observed(record, account)
        self._save(replace(observed, status=replace(observed.status, ended=True)))
        self._drop_surplus()

    def recover(self) -> None:
        """Bring the accounts in line with the grants on disk, at the start of the agent.

        An account whose grant went with the last boot, or without its account, ends incomplete.
        One that ended though its grant is still here goes on.
        """
        present = self._present()
        for record in list(self._records.values()):
            status = record.status
            if status.ended and status.grant in present and record.boot == self._boot:
                self._save(replace(record, status=replace(status, ended=False)))
        self._end_abandoned(present)
        self.start(present)
        for name in self._records:
            self._changed(name)

    async def run(self) -> None:
        """Write checkpoints until cancelled."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            self._end_abandoned(self._present())
            for grant in list(self._open):
                self.checkpoint([grant])
                await asyncio.sleep(0)

    def checkpoint(self, grants: Collection[str]) -> None:
        """Write what present grants have used until now to disk."""
        for account in self._grants.accounts(self._open.keys() & set(grants)):
            self._save(self._observed(self._records[self._open[account.grant]], account))

    def forget(self, record: Record, *, lost: str = "") -> None:
        """Remove an account whose end the API server has, or will never have.

        Args:
            record: as it was sent; one that has changed since then stays.
            lost: why the API server will never have it.
        """
        if self._records.get(record.name) is not record:
            return
        if lost:
            self._lost.inc()
            log.error("account lost", name=record.name, namespace=record.namespace, reason=lost)
        del self._records[record.name]
        self._folder.remove(record.name)

    def _present(self) -> set[str]:
        """The grants on disk."""
        return {name for grant in self._grants.all() for name in grant.names}

    def _end_abandoned(self, present: Collection[str]) -> None:
        """Close the accounts of grants that went without one, as of a claim that failed."""
        for name in [name for grant, name in self._open.items() if grant not in present]:
            record = self._records[name]
            self._save(replace(record, status=replace(record.status, ended=True, complete=False)))

    def _opened(self, account: Account) -> Record:
        holders = {
            (vgpu.spec.uuid, holder.share): holder
            for vgpu, holder in self._view.held_by(account.pod.uid)
        }
        # By when it was written: an agent that starts again makes the same account.
        written = min(account.written_ns, self._clock.wall_ns())
        status = ShareUsageStatus(
            node_name=self._view.node,
            grant=account.grant,
            pod=account.pod.name,
            pod_uid=account.pod.uid,
            group=next((holder.group for holder in holders.values()), ""),
            owner=self._owner(account, holders.values()),
            started_at=time_text(written),
            observed_at=time_text(written),
            shares=tuple(
                UsedShare(
                    uuid=share.uuid,
                    share=share.share,
                    model=share.model,
                    request_micros=share.request_micros,
                    memory_bytes=share.memory_bytes,
                    exclusive=(share.uuid, share.share) in holders
                    and bool(holders[share.uuid, share.share].exclusion),
                )
                for share in account.shares
            ),
        )
        elapsed = self._clock.wall_ns() - written
        digest = sha256(f"{account.grant} {written}".encode()).hexdigest()[:10]
        return Record(
            name=f"{account.pod.name[:_POD_LENGTH].rstrip('.-')}-{digest}",
            namespace=account.pod.namespace,
            boot=self._boot,
            started_ns=self._clock.elapsed_ns() - elapsed,
            status=self._counted(status, account),
        )

    def _owner(self, account: Account, holders: Iterable[Holder]) -> str:
        service = next((holder.group for holder in holders if "/" in holder.group), "")
        pod = self._view.pods.store.by_uid(account.pod.uid)
        if not service and pod is not None:
            service = service_of(msgspec.to_builtins(pod.metadata))
        return (service or f"Pod/{account.pod.name}")[:MAX_LENGTH]

    def _observed(self, record: Record, account: Account) -> Record:
        """A record until now; of an earlier boot, until its last checkpoint."""
        if record.boot != self._boot:
            status = self._counted(record.status, account)
            return replace(record, status=replace(status, complete=False))
        duration = max(record.status.duration_ns, self._clock.elapsed_ns() - record.started_ns)
        until = time_text(time_ns(record.status.started_at) + duration)
        status = replace(record.status, duration_ns=duration, observed_at=until)
        return replace(record, status=self._counted(status, account))

    def _counted(self, status: ShareUsageStatus, account: Account) -> ShareUsageStatus:
        """An account with what was charged, and the present prices."""
        usage = self._configuration()
        used = {(share.uuid, share.share): share.used_ns for share in account.shares}
        counts = [used.get((share.uuid, share.share)) for share in status.shares]
        return replace(
            status,
            complete=None not in counts and not account.has_gaps,
            currency=usage.currency,
            shares=tuple(
                replace(
                    share,
                    used_ns=share.used_ns if count is None else count,
                    price_micros=usage.price_micros(share.model),
                )
                for share, count in zip(status.shares, counts, strict=True)
            ),
        )

    def _save(self, record: Record) -> None:
        before = self._records.get(record.name)
        self._records[record.name] = record
        self._folder.write(record)
        grant = record.status.grant
        if record.status.ended:
            self._open.pop(grant, None)
        else:
            self._open[grant] = record.name
        if before is None or before.status.ended != record.status.ended:
            self._changed(record.name)

    def _changed(self, name: str) -> None:
        for handler in self._handlers:
            handler(name)

    def _drop_surplus(self) -> None:
        surplus = len(self._records) - MOST_RECORDS
        ended = (record for record in self._records.values() if record.status.ended)
        for record in [found for found, _ in zip(ended, range(max(0, surplus)), strict=False)]:
            self.forget(record, lost=f"more than {MOST_RECORDS} wait for the API server")
