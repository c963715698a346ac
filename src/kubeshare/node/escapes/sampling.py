"""Samples the processes on this node's GPUs.

All of it blocks: run it in a thread. Processes that end while it samples are left out.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog

from kubeshare.node.cgroups import parse_cgroup
from kubeshare.node.claim_mounts import ClaimMounts
from kubeshare.node.escapes.detection import GpuUse, Sample
from kubeshare.node.escapes.file_mappings import has_mapped
from kubeshare.node.gpus.discovery import GpuProcess
from kubeshare.tokens import client
from kubeshare.tokens.files.counters import CountersReader, Process
from kubeshare.tokens.files.grants import Grant, process_start_time, read_grant
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

log = structlog.get_logger(__name__)

USES_MAX: Final = 4096
"""The most processes on GPUs that one sample contains."""

_TEXT_MAX: Final = 64 * 1024
_UNNAMED: Final = 0
"""The pid of processes that have lost the lock which names them."""


def cgroup_of(pid: int) -> str:
    """Read ``/proc/PID/cgroup``.

    Raises:
        OSError: there is no such process.
    """
    with Path(f"/proc/{pid}/cgroup").open() as file:
        return file.read(_TEXT_MAX)


class Sampler:
    """Takes samples.

    Args:
        paths: of the token daemon's run folder.
        processes: lists the driver's processes.
        cgroup: reads a process's cgroup.
        claims: the claims that a process has mounted; by default from the kernel.
    """

    def __init__(
        self,
        paths: Paths,
        processes: Callable[[], list[GpuProcess]],
        cgroup: Callable[[int], str] = cgroup_of,
        claims: Callable[[int], tuple[str, ...]] | None = None,
    ) -> None:
        self._paths = paths
        self._counters = CountersReader(paths)
        self._processes = processes
        self._cgroup = cgroup
        self._claims = claims or ClaimMounts(paths.claims).of_process

    def sample(self, containers: Mapping[str, tuple[str, str]]) -> Sample:
        """Take a sample; ``containers`` are as in :class:`Sample`.

        Raises:
            DiscoveryError: the driver does not answer.
        """
        grants = self._grants()
        before = self._accounts(grants)
        # Without grants, do not disturb the driver.
        found = self._processes()[:USES_MAX] if grants else []
        uses = tuple(use for one in found if (use := self.use(one)) is not None)
        accounts = _maximum(before, self._accounts(grants))
        return Sample(
            grants=grants,
            uses=uses,
            containers=containers,
            connected=self._connected(),
            accounts=accounts,
            hung=self._hung(),
            costly=frozenset(each.claim for each in grants if self._is_costly(each.claim)),
            mapped=self._mapped(grants, uses, accounts),
        )

    def use(self, found: GpuProcess) -> GpuUse | None:
        """Add what the kernel knows to a process of the driver; None if it has ended."""
        try:
            started = process_start_time(found.pid)
            cgroup = parse_cgroup(self._cgroup(found.pid))
            claims = self._claims(found.pid)
        except OSError:
            return None
        if started is None:
            return None
        return GpuUse(
            uuid=found.uuid,
            pid=found.pid,
            started=started,
            memory_bytes=found.memory_bytes,
            cgroup=cgroup,
            claims=claims,
            mps=found.mps,
        )

    def report_overhead(self, claim: str, uuid: str, overhead: int) -> bool:
        """Report an overhead to the daemon; False if that fails now."""
        try:
            client.set_overhead(self._paths, claim, uuid, overhead)
        except (DaemonMissingError, client.RequestRefusedError) as error:
            log.info("overhead not reported", claim=claim, gpu=uuid, error=str(error))
            return False
        return True

    def _grants(self) -> tuple[Grant, ...]:
        found = []
        for file in sorted(self._paths.grants.glob("*.json")):
            try:
                grant = read_grant(file)
            except (GrantError, OSError):
                continue
            if grant.pod is not None:
                found.append(grant)
        return tuple(found)

    def _connected(self) -> dict[str, frozenset[int]]:
        try:
            return {
                claim: frozenset(pids)
                for claim, pids in client.ask_connections(self._paths).items()
            }
        except (DaemonMissingError, client.RequestRefusedError):
            return {}  # the counters suffice; a missing daemon is reported elsewhere

    def _is_costly(self, claim: str) -> bool:
        return self._counters.is_skipped(claim)

    def _mapped(
        self,
        grants: tuple[Grant, ...],
        uses: tuple[GpuUse, ...],
        accounts: Mapping[str, Mapping[int, object]],
    ) -> dict[str, frozenset[int]]:
        return {
            grant.claim: frozenset(
                pid
                for pid in {use.pid for use in uses if _may_use(use, grant)}
                if has_mapped(pid, self._paths.counters(grant.claim))
            )
            for grant in grants
            if self._is_costly(grant.claim) or _UNNAMED in accounts[grant.claim]
        }

    def _hung(self) -> dict[str, dict[str, frozenset[int]]]:
        try:
            return {
                claim: {uuid: frozenset(pids) for uuid, pids in gpus.items()}
                for claim, gpus in client.ask_hung(self._paths).items()
            }
        except (DaemonMissingError, client.RequestRefusedError):
            return {}

    def _accounts(self, grants: tuple[Grant, ...]) -> dict[str, dict[int, dict[str, int]]]:
        return {
            grant.claim: _by_pid(grant, self._counters.processes(grant.claim)) for grant in grants
        }


def _by_pid(grant: Grant, processes: Iterable[Process]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for process in processes:
        account = found.setdefault(process.pid, {})
        for gpu, memory in zip(grant.gpus, process.memory_bytes, strict=False):
            account[gpu.uuid] = account.get(gpu.uuid, 0) + memory
    return found


def _may_use(use: GpuUse, grant: Grant) -> bool:
    is_of_pod = grant.pod is not None and grant.pod.uid in use.cgroup.pods
    return is_of_pod or grant.claim in use.claims


def _maximum(
    before: Mapping[str, Mapping[int, Mapping[str, int]]],
    after: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> dict[str, dict[int, dict[str, int]]]:
    """The larger of both values: the driver's, read in between, is never more than that."""
    return {
        claim: {
            pid: {
                uuid: max(
                    before[claim].get(pid, {}).get(uuid, 0), after[claim].get(pid, {}).get(uuid, 0)
                )
                for uuid in before[claim].get(pid, {}).keys() | after[claim].get(pid, {}).keys()
            }
            for pid in before[claim].keys() | after[claim].keys()
        }
        for claim in before
    }
