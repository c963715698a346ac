"""Detects processes that bypass the device library, by driver and library records.

Pure. A process of a pod that has a grant is *held* if it has a connection to the token
daemon or a slot in its claim's counters; the kernel says which process owns them. The
library gets both before the driver knows the process, so a process that uses a GPU without
either runs without the library: it is static, built for another architecture or libc, or
avoids loading it. Where a container makes its counters too expensive to read, the claim's counters
are *costly*. There, and where a process has lost the lock that names it in its slot, as by closing
all of its descriptors, a process that has the counters mapped is held.

A process of another pod that has the claim mounted uses the share too: the kubelet
attaches a prepared claim to each pod for which it is reserved. Its memory counts as the
claim's, and the process is *foreign*.

A process that uses a GPU through an MPS server is an *MPS client*: it is held as every other, and
what ends one client of a server ends all.

Where the containers of a pod have different grants, the mount also says which one a process
uses.

A grant whose work on a GPU the token daemon no longer waits for is *hung*: the finding is about the
process whose kernel does not end, where that is known.

A grant is charged for what the library tracks, and for what the driver counts beyond that
(contexts, modules, processes without the library): its *overhead*, which the library
subtracts from the limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct, structs

from kubeshare.node.cgroups import CgroupIds
from kubeshare.tokens.files.grants import Grant, GrantedPod
from kubeshare.tokens.overheads import Overheads

Reason = Literal[
    "UnheldProcess",
    "MemoryOverLimit",
    "ForeignProcess",
    "MpsClient",
    "HungKernel",
    "CostlyCounters",
]

REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

UNHELD: Final[Reason] = "UnheldProcess"
OVER_LIMIT: Final[Reason] = "MemoryOverLimit"
FOREIGN: Final[Reason] = "ForeignProcess"
MPS_CLIENT: Final[Reason] = "MpsClient"
HUNG: Final[Reason] = "HungKernel"
COSTLY: Final[Reason] = "CostlyCounters"


class GpuUse(Struct, frozen=True, kw_only=True):
    """A process on a GPU, as the driver reports it.

    Attributes:
        uuid: of the GPU.
        pid: on this machine.
        started: clock ticks from boot to its start, which detect a reused pid.
        memory_bytes: None where the driver does not report them.
        cgroup: the ids in its cgroup path.
        claims: the names of the grants that it has mounted.
        mps: whether it uses the GPU through an MPS server.
    """

    uuid: str
    pid: int
    started: int
    memory_bytes: int | None
    cgroup: CgroupIds
    claims: tuple[str, ...] = ()
    mps: bool = False


class Sample(Struct, frozen=True, kw_only=True):
    """What driver, daemon and library report at about one time.

    Attributes:
        grants: of pods; the containers of a pod may have different ones.
        uses: of all GPUs by all processes.
        containers: id → the pod's uid and the container's name, from the API server.
        connected: grant → pids of the processes that are connected to the token daemon.
        accounts: grant → pid → GPU → bytes that the library tracks; pid 0 is all those processes
            that the kernel does not name.
        hung: grant → GPU → pids of which the token daemon knows that their work has not ended;
            it does not see those of containers.
        costly: the grants whose counters are not read, because that takes too long.
        mapped: grant whose counters do not name all processes → pids that have them mapped.
    """

    grants: tuple[Grant, ...]
    uses: tuple[GpuUse, ...]
    containers: Mapping[str, tuple[str, str]]
    connected: Mapping[str, frozenset[int]]
    accounts: Mapping[str, Mapping[int, Mapping[str, int]]]
    hung: Mapping[str, Mapping[str, frozenset[int]]] = {}
    costly: frozenset[str] = frozenset()
    mapped: Mapping[str, frozenset[int]] = {}


class Finding(Struct, frozen=True, kw_only=True):
    """A use of GPUs that violates a grant.

    Attributes:
        reason: the kind of violation.
        claim: the name of the grant.
        pod: the holder of the grant.
        container: its name; "" where it is not known.
        pid: the process; of several, the one that most exceeds what the library tracks. It says
            nothing about who makes counters costly, and is 0 where none of the grant uses the GPU.
        started: as in :class:`GpuUse`.
        gpus: their UUIDs.
        used_bytes: what the driver counts.
        limit_bytes: what the grant allows.
        is_certain: whether it is this process, and not another one of the grant.
    """

    reason: Reason
    claim: str
    pod: GrantedPod
    container: str
    pid: int
    started: int
    gpus: tuple[str, ...]
    used_bytes: int
    limit_bytes: int
    is_certain: bool = True

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the same finding in the next sample."""
        is_of_the_grant = self.reason == OVER_LIMIT or not self.is_certain
        process = () if is_of_the_grant else (self.pid, self.started)
        return (self.reason, self.claim, self.gpus, *process)


def detect(sample: Sample) -> tuple[list[Finding], Overheads]:
    """The findings, and the overheads by grant and GPU where they are known."""
    known = _Known(sample)
    by_process: dict[tuple[str, int, int], list[_Owned]] = defaultdict(list)
    by_gpu: dict[tuple[str, str], list[_Owned]] = defaultdict(list)
    for use in sample.uses:
        owned = known.owned(use)
        if owned is not None:
            by_process[owned.grant.claim, use.pid, use.started].append(owned)
            by_gpu[owned.grant.claim, use.uuid].append(owned)
    findings = [
        _finding(reason, uses, uses[0])
        for uses in by_process.values()
        if (reason := _reason(uses)) is not None
    ]
    for (claim, uuid), uses in by_gpu.items():
        if _used(uses) > limit_of(uses[0].grant, uuid):
            findings.append(_finding(OVER_LIMIT, uses, max(uses, key=_suspicion)))
        hung = sample.hung.get(claim, {}).get(uuid)
        if hung is not None:
            findings.append(_hung(uses, hung))
    for grant in sample.grants:
        if grant.claim in sample.costly and grant.pod is not None:
            findings += [_costly(grant, gpu.uuid, by_gpu) for gpu in grant.gpus]
    findings.sort(key=lambda found: (found.claim, found.reason, found.gpus, found.pid))
    return findings, dict(_overheads(sample, by_gpu))


def limit_of(grant: Grant, uuid: str) -> int:
    """The bytes that a grant allows on a GPU; 0 if it does not name it."""
    return next((gpu.most_memory_bytes for gpu in grant.gpus if gpu.uuid == uuid), 0)


class _Owned(Struct, frozen=True):
    """A use, and the grant and container that it belongs to.

    Attributes:
        held: whether the library is loaded in the process.
        foreign: whether the process is of another pod than the grant.
        tracked: bytes that the library tracks for this process on this GPU.
    """

    use: GpuUse
    grant: Grant
    container: str
    held: bool
    foreign: bool
    tracked: int


class _Known:
    """Indexes a sample by pod and grant."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._by_claim: dict[str, Grant] = {}
        for grant in sorted(sample.grants, key=lambda grant: grant.claim):
            if grant.pod is not None:
                self._grants[grant.pod.uid].append(grant)
                self._by_claim[grant.claim] = grant

    def owned(self, use: GpuUse) -> _Owned | None:
        """Find the grant that a use belongs to; None if neither pod nor mounts have one."""
        pod, container = self._pod(use.cgroup)
        # The pod's own first, and of those the ones of the container: it has their mount.
        grants = sorted(self._grants.get(pod, ()), key=lambda grant: grant.claim not in use.claims)
        grants += [
            grant
            for claim in use.claims
            if (grant := self._by_claim.get(claim)) is not None and grant not in grants
        ]
        if not grants:
            return None
        # The grant that names the GPU; if none does, the use exceeds any of them.
        grant = next((grant for grant in grants if limit_of(grant, use.uuid)), grants[0])
        accounts = [self._sample.accounts.get(grant.claim, {}) for grant in grants]
        return _Owned(
            use,
            grant,
            container,
            foreign=bool(pod) and grant.pod is not None and grant.pod.uid != pod,
            held=any(
                use.pid in account
                or use.pid in self._sample.connected.get(grant.claim, ())
                or use.pid in self._sample.mapped.get(grant.claim, ())
                for grant, account in zip(grants, accounts, strict=True)
            ),
            tracked=sum(account.get(use.pid, {}).get(use.uuid, 0) for account in accounts),
        )

    def _pod(self, cgroup: CgroupIds) -> tuple[str, str]:
        """The uid of the pod and the name of the container; "" where they are not known."""
        for container_id in cgroup.containers:
            known = self._sample.containers.get(container_id)
            if known is not None:
                return known
        granted = (pod for pod in cgroup.pods if pod in self._grants)
        return next(granted, next(iter(cgroup.pods), "")), ""


def _reason(uses: Sequence[_Owned]) -> Reason | None:
    """What is wrong with a process, whatever memory it uses; the worst alone."""
    if uses[0].foreign:
        return FOREIGN
    if not uses[0].held:
        return UNHELD
    return MPS_CLIENT if any(owned.use.mps for owned in uses) else None


def _used(uses: Iterable[_Owned]) -> int:
    return sum(owned.use.memory_bytes or 0 for owned in uses)


def _suspicion(owned: _Owned) -> tuple[bool, int, int]:
    """Orders processes by how likely they caused an exceeded limit: the largest did."""
    memory = owned.use.memory_bytes or 0
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
        used_bytes=_used(uses),
        limit_bytes=sum(limit_of(grant, uuid) for uuid in gpus),
    )


def _hung(uses: list[_Owned], pids: frozenset[int]) -> Finding:
    """Of the processes that the daemon named, or of all that it may mean."""
    held = [owned for owned in uses if owned.held and not owned.foreign]
    suspects = [owned for owned in held if owned.use.pid in pids] or held or uses
    found = _finding(HUNG, uses, max(suspects, key=lambda owned: owned.use.pid))
    return structs.replace(found, is_certain=len({owned.use.pid for owned in suspects}) == 1)


def _costly(grant: Grant, uuid: str, by_gpu: Mapping[tuple[str, str], list[_Owned]]) -> Finding:
    """Of a grant on one GPU, whether a process of it uses that or not."""
    uses = by_gpu.get((grant.claim, uuid))
    if uses:
        found = _finding(COSTLY, uses, max(uses, key=_suspicion))
        return structs.replace(found, is_certain=False)
    assert grant.pod is not None
    return Finding(
        reason=COSTLY,
        claim=grant.claim,
        pod=grant.pod,
        container="",
        pid=0,
        started=0,
        gpus=(uuid,),
        used_bytes=0,
        limit_bytes=limit_of(grant, uuid),
        is_certain=False,
    )


def _overheads(
    sample: Sample, by_gpu: Mapping[tuple[str, str], list[_Owned]]
) -> Iterator[tuple[tuple[str, str], int]]:
    for grant in sample.grants:
        account = sample.accounts.get(grant.claim, {})
        for gpu in grant.gpus:
            uses = by_gpu.get((grant.claim, gpu.uuid), [])
            if all(owned.use.memory_bytes is not None for owned in uses):
                tracked = sum(process.get(gpu.uuid, 0) for process in account.values())
                yield (grant.claim, gpu.uuid), max(0, _used(uses) - tracked)
