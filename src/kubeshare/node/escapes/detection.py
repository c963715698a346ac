"""What uses a GPU past the device library: what the driver says beside what the library says.

Pure. A process of a pod that has a grant is *held* when it has a connection to the token
daemon or a slot in its claim's account, of which the kernel says whose they are. The
library gets both before the driver knows of the process, so one that uses a GPU without
either runs without the library: it is static, of another architecture or another libc, or
has taken care not to load it.

Charged to a claim is what the library tracks, and what the driver counts beyond that
(contexts, modules, processes without the library): its *overhead*, which the library
subtracts from the limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from kubeshare.node.cgroups import CgroupIds
from kubeshare.tokens.files.grants import Grant, GrantedPod
from kubeshare.tokens.overheads import Overheads

Reason = Literal["UnheldProcess", "MemoryOverLimit"]

UNHELD: Final[Reason] = "UnheldProcess"
OVER_LIMIT: Final[Reason] = "MemoryOverLimit"


class GpuUse(Struct, frozen=True, kw_only=True):
    """A process on a GPU, as the driver tells of it.

    Attributes:
        uuid: of the GPU.
        pid: on this machine.
        started: clock ticks from boot to its start, which tell it from a later one of that pid.
        memory: bytes; None where the driver does not say.
        place: where its cgroup lies.
    """

    uuid: str
    pid: int
    started: int
    memory: int | None
    place: CgroupIds


class Sample(Struct, frozen=True, kw_only=True):
    """Everything at about one moment.

    Attributes:
        grants: of pods.
        uses: of all GPUs by all processes.
        containers: id → the pod's uid and the container's name, as the API server knows them.
        connected: claim → pids of the processes that are connected to the token daemon.
        accounts: claim → pid → GPU → bytes, as the library tracks them.
    """

    grants: tuple[Grant, ...]
    uses: tuple[GpuUse, ...]
    containers: Mapping[str, tuple[str, str]]
    connected: Mapping[str, frozenset[int]]
    accounts: Mapping[str, Mapping[int, Mapping[str, int]]]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that should not be.

    Attributes:
        reason: which.
        claim: of the grant.
        pod: that holds it.
        container: its name; "" where it is not known.
        pid: the process, or of several the one that most exceeds what the library tracks.
        started: as in :class:`GpuUse`.
        gpus: on which.
        used: bytes, as the driver says.
        limit: bytes.
    """

    reason: Reason
    claim: str
    pod: GrantedPod
    container: str
    pid: int
    started: int
    gpus: tuple[str, ...]
    used: int
    limit: int

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it the same one at the next look."""
        process = (self.pid, self.started) if self.reason == UNHELD else ()
        return (self.reason, self.claim, self.gpus, *process)


def detect(look: Sample) -> tuple[list[Finding], Overheads]:
    """What should not be, and the overheads of all parts of which they are known."""
    known = _Known(look)
    by_process: dict[tuple[str, int, int], list[_Owned]] = defaultdict(list)
    by_gpu: dict[tuple[str, str], list[_Owned]] = defaultdict(list)
    for use in look.uses:
        owned = known.owned(use)
        if owned is not None:
            by_process[owned.grant.claim, use.pid, use.started].append(owned)
            by_gpu[owned.grant.claim, use.uuid].append(owned)
    findings = [_finding(UNHELD, uses, uses[0]) for uses in by_process.values() if not uses[0].held]
    for (_, uuid), uses in by_gpu.items():
        if _used(uses) > limit_of(uses[0].grant, uuid):
            findings.append(_finding(OVER_LIMIT, uses, max(uses, key=_suspicion)))
    findings.sort(key=lambda found: (found.claim, found.reason, found.gpus, found.pid))
    return findings, dict(_overheads(look, by_gpu))


def limit_of(grant: Grant, uuid: str) -> int:
    """The bytes that a grant allows on a GPU; 0 on one that it does not name."""
    return next((gpu.memory_bytes for gpu in grant.gpus if gpu.uuid == uuid), 0)


class _Owned(Struct, frozen=True):
    """A use, and whose it is.

    Attributes:
        held: the library is in the process.
        tracked: bytes that it tracks for this process on this GPU.
    """

    use: GpuUse
    grant: Grant
    container: str
    held: bool
    tracked: int


class _Known:
    """A look, arranged by pod."""

    def __init__(self, look: Sample) -> None:
        self._look = look
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        for grant in sorted(look.grants, key=lambda grant: grant.claim):
            if grant.pod is not None:
                self._grants[grant.pod.uid].append(grant)

    def owned(self, use: GpuUse) -> _Owned | None:
        """Whose a use is; None where it is of no pod with a grant."""
        pod, container = self._pod(use.place)
        grants = self._grants.get(pod)
        if not grants:
            return None
        # The one that names the GPU; where none does, the use is of any of them, and too much.
        grant = next((grant for grant in grants if limit_of(grant, use.uuid)), grants[0])
        accounts = [self._look.accounts.get(grant.claim, {}) for grant in grants]
        return _Owned(
            use,
            grant,
            container,
            held=any(
                use.pid in account or use.pid in self._look.connected.get(grant.claim, ())
                for grant, account in zip(grants, accounts, strict=True)
            ),
            tracked=sum(account.get(use.pid, {}).get(use.uuid, 0) for account in accounts),
        )

    def _pod(self, place: CgroupIds) -> tuple[str, str]:
        """The uid of the pod and the name of the container, as far as they are known."""
        for container_id in place.containers:
            known = self._look.containers.get(container_id)
            if known is not None:
                return known
        return next((pod for pod in place.pods if pod in self._grants), ""), ""


def _used(uses: Iterable[_Owned]) -> int:
    return sum(owned.use.memory or 0 for owned in uses)


def _suspicion(owned: _Owned) -> tuple[bool, int, int]:
    """Whose doing it is when memory is over the limit: the largest one's."""
    memory = owned.use.memory or 0
    return not owned.held, memory - owned.tracked, owned.use.pid


def _finding(reason: Reason, uses: list[_Owned], worst: _Owned) -> Finding:
    grant = worst.grant
    assert grant.pod is not None
    gpus = tuple(sorted({owned.use.uuid for owned in uses}))
    return Finding(
        reason=reason,
        claim=grant.claim,
        pod=grant.pod,
        container=worst.container,
        pid=worst.use.pid,
        started=worst.use.started,
        gpus=gpus,
        used=_used(uses),
        limit=sum(limit_of(grant, uuid) for uuid in gpus),
    )


def _overheads(
    look: Sample, by_gpu: Mapping[tuple[str, str], list[_Owned]]
) -> Iterator[tuple[tuple[str, str], int]]:
    for grant in look.grants:
        account = look.accounts.get(grant.claim, {})
        for gpu in grant.gpus:
            uses = by_gpu.get((grant.claim, gpu.uuid), [])
            if all(owned.use.memory is not None for owned in uses):
                tracked = sum(process.get(gpu.uuid, 0) for process in account.values())
                yield (grant.claim, gpu.uuid), max(0, _used(uses) - tracked)
