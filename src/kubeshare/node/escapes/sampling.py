"""One look at who uses this node's GPUs: at the driver, the kernel, the daemon, the accounts.

All of it blocks: run it in a thread. What is gone by the time it is looked at is left out.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from kubeshare.node.cgroups import parse_cgroup
from kubeshare.node.escapes.detection import GpuUse, Sample
from kubeshare.node.gpus.discovery import GpuProcess
from kubeshare.tokens import client
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import Grant, process_start_time, read_grant
from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

log = structlog.get_logger(__name__)

USES_MAX: Final = 4096
"""Processes on GPUs that a look takes in; more are left to those after it."""

_TEXT_MAX: Final = 64 * 1024


def cgroup_of(pid: int) -> str:
    """The text of ``/proc/PID/cgroup``.

    Raises:
        OSError: there is no such process.
    """
    with Path(f"/proc/{pid}/cgroup").open() as file:
        return file.read(_TEXT_MAX)


class Sampler:
    """Looks.

    Args:
        paths: of the token daemon's run folder.
        processes: asks the driver.
        cgroup: a process's cgroup.
    """

    def __init__(
        self,
        paths: Paths,
        processes: Callable[[], list[GpuProcess]],
        cgroup: Callable[[int], str] = cgroup_of,
    ) -> None:
        self._paths = paths
        self._processes = processes
        self._cgroup = cgroup

    def look(self, containers: Mapping[str, tuple[str, str]]) -> Sample:
        """What there is now.

        Args:
            containers: as in :class:`Sample`.

        Raises:
            DiscoveryError: the driver does not answer.
        """
        grants = self._grants()
        before = self._accounts(grants)
        # With nobody to look for, the driver is left alone.
        found = self._processes()[:USES_MAX] if grants else []
        uses = tuple(use for one in found if (use := self.use(one)) is not None)
        return Sample(
            grants=grants,
            uses=uses,
            containers=containers,
            connected=self._connected(),
            accounts=_most(before, self._accounts(grants)),
        )

    def use(self, found: GpuProcess) -> GpuUse | None:
        """A process that the driver tells of, and where it is; None when it is gone."""
        try:
            started = process_start_time(found.pid)
            place = parse_cgroup(self._cgroup(found.pid))
        except OSError:
            return None
        if started is None:
            return None
        return GpuUse(
            uuid=found.uuid, pid=found.pid, started=started, memory=found.memory, place=place
        )

    def tell_overhead(self, claim: str, uuid: str, overhead: int) -> bool:
        """Tell the daemon; False when it cannot be told now."""
        try:
            client.set_overhead(self._paths, claim, uuid, overhead)
        except (DaemonMissingError, client.RequestRefusedError) as error:
            log.info("overhead not told", claim=claim, gpu=uuid, error=str(error))
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
            return {}  # the accounts say enough; a daemon that is away is told of elsewhere

    def _accounts(self, grants: tuple[Grant, ...]) -> dict[str, dict[int, dict[str, int]]]:
        return {
            grant.claim: {
                process.pid: {
                    gpu.uuid: memory
                    for gpu, memory in zip(grant.gpus, process.memory, strict=False)
                }
                for process in counters.processes(self._paths.counters(grant.claim))
                if process.pid
            }
            for grant in grants
        }


def _most(
    before: Mapping[str, Mapping[int, Mapping[str, int]]],
    after: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> dict[str, dict[int, dict[str, int]]]:
    """The larger of both: what the driver said in between is never more than that."""
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
