"""Grant files: how much of which GPUs a claim may use."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeshare.core.units import MICROS
from kubeshare.tokens.files.run_folder import (
    GrantError,
    Paths,
    check_claim,
    read_document,
    write_whole,
)
from kubeshare.tokens.wire.protocol import CELLS_MAX

GRANT_VERSION: Final = 2

_GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNKNOWN_VERSION = re.compile(r"version (\d+) is not known, (\d+) is")
_QUOTA_BOUNDS_NS = (5_000_000, 10_000_000_000)

# What version 1 called the amounts of a share: a running pod keeps its grant over an upgrade.
_NAMES_1_TO_2: Final = {
    "memoryTotal": "memoryTotalBytes",
    "request": "requestMicros",
    "limit": "limitMicros",
    "memory": "memoryBytes",
}


class GrantedShare(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A share of one GPU.

    Attributes:
        uuid: the GPU's, as NVML writes it: `GPU-…`.
        memory_total_bytes: the memory of the GPU that may be granted, to all claims together.
        physical_memory_bytes: what the GPU has, where more may be granted; 0 is the same.
        request_micros: guaranteed share of its time, in millionths.
        limit_micros: largest share of its time, in millionths.
        memory_bytes: the memory that is reserved for the claim.
        memory_limit_bytes: the most memory that the claim may hold, up to all of the GPU's, as
            far as it is free; 0 is what is reserved.
        limit_alone_micros: largest share of its time while no other grant is on that GPU, in
            millionths; 0 is the limit.
        latency_sensitive: whether its launches are served promptly, within its request.
        share: name of the share in its demand, for people; "" is the only one.
        model: for people.
    """

    uuid: str
    memory_total_bytes: int
    request_micros: int
    limit_micros: int
    memory_bytes: int
    memory_limit_bytes: int = 0
    limit_alone_micros: int = 0
    latency_sensitive: bool = False
    share: str = ""
    model: str = ""
    physical_memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not _GPU_UUID.fullmatch(self.uuid):
            raise ValueError(f"uuid {self.uuid!r} is not that of a whole GPU, GPU-8-4-4-4-12")
        if not 0 <= self.request_micros <= self.limit_micros <= MICROS:
            raise ValueError(
                f"request {self.request_micros} and limit {self.limit_micros}: "
                f"not in order within 0 and {MICROS}"
            )
        if self.limit_alone_micros and not self.limit_micros <= self.limit_alone_micros <= MICROS:
            raise ValueError(
                f"limitAlone {self.limit_alone_micros} is neither 0 nor from the limit "
                f"{self.limit_micros} to {MICROS}"
            )
        if not 0 < self.memory_bytes <= self.memory_total_bytes < 2**63:
            raise ValueError(
                f"memory {self.memory_bytes} is not within the GPU's "
                f"{self.memory_total_bytes} bytes"
            )
        if not 0 <= self.physical_memory_bytes <= self.memory_total_bytes:
            raise ValueError(
                f"physicalMemory {self.physical_memory_bytes} is neither 0 nor up to the "
                f"{self.memory_total_bytes} bytes that may be granted"
            )
        limit = self.memory_limit_bytes
        if limit and not self.memory_bytes <= limit <= self.memory_total_bytes:
            raise ValueError(
                f"memoryLimit {limit} is neither 0 nor from the memory {self.memory_bytes} to the "
                f"GPU's {self.memory_total_bytes} bytes"
            )

    @property
    def most_memory_bytes(self) -> int:
        """The most memory that the claim may hold."""
        return self.memory_limit_bytes or self.memory_bytes

    @property
    def gpu_memory_bytes(self) -> int:
        """The memory that the GPU has."""
        return self.physical_memory_bytes or self.memory_total_bytes

    @property
    def is_oversubscribed(self) -> bool:
        """Whether more of the GPU's memory may be granted than it has."""
        return self.gpu_memory_bytes < self.memory_total_bytes


class GrantedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that holds a grant."""

    namespace: str
    name: str
    uid: str


class Owner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The process of `kubeshare run`; the grant ends with it.

    Attributes:
        pid: on this machine.
        start_time: clock ticks since boot (`/proc/PID/stat`), which detects a reused pid.
    """

    pid: int
    start_time: int


class Grant(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What one claim may use.

    Attributes:
        claim: the claim's name: letters, digits, `.`, `_`, `-`, at most 128, not first a dot.
        gpus: one share a GPU, in the order of the page's cells.
        pod: its holder in a cluster.
        container: which of the pod's containers.
        owner: its holder on a machine without a cluster.
        quota_ns: the longest time between two decisions about this claim; None: the daemon's.
    """

    version: int
    claim: str
    gpus: tuple[GrantedShare, ...]
    pod: GrantedPod | None = None
    container: str | None = None
    owner: Owner | None = None
    quota_ns: int | None = None

    def __post_init__(self) -> None:
        check_claim(self.claim)
        if self.version != GRANT_VERSION:
            # `refused_by_older_daemon` reads these words in the answers of all versions.
            raise ValueError(f"version {self.version} is not known, {GRANT_VERSION} is")
        if not self.gpus:
            raise ValueError("gpus is empty")
        if len(self.gpus) > CELLS_MAX:
            raise ValueError(f"gpus names {len(self.gpus)}, a claim has at most {CELLS_MAX}")
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise ValueError("gpus names a GPU twice")
        low, high = _QUOTA_BOUNDS_NS
        if self.quota_ns is not None and not low <= self.quota_ns <= high:
            raise ValueError(f"quotaNs {self.quota_ns} is not within 5 ms and 10 s")

    @property
    def holder(self) -> str:
        """The holder's name for people."""
        if self.pod is None:
            return self.claim
        container = f"/{self.container}" if self.container else ""
        return f"{self.pod.namespace}/{self.pod.name}{container}"


def share_holder(holder: str, share: str) -> str:
    """The name for people of one share of a holder, which may have several on a GPU."""
    return f"{holder}:{share}" if share else holder


def write_grant(paths: Paths, grant: Grant) -> None:
    """Write a grant; the daemon answers in the claim's status file."""
    paths.make()
    write_whole(paths.grant(grant.claim), msgspec.json.encode(grant))


def refused_by_older_daemon(reason: str) -> bool:
    """Whether a token daemon refused a grant because its version came after that daemon."""
    found = _UNKNOWN_VERSION.search(reason)
    return found is not None and int(found[1]) > int(found[2])


def remove_grant(paths: Paths, claim: str) -> None:
    """End a grant; does nothing where there is none."""
    paths.grant(claim).unlink(missing_ok=True)


def read_grant(path: Path) -> Grant:
    """Read a grant file.

    Raises:
        GrantError: it is not a grant, or its claim is not the one in the file's name.
        FileNotFoundError: there is no such file.
    """
    grant = read_document(path, Grant, upgrade=_from_version_1)
    if f"{grant.claim}.json" != path.name:
        raise GrantError(f"{path.name}: it is the grant of claim {grant.claim}")
    return grant


def _from_version_1(document: Any) -> Any:
    """Rename the amounts of a version 1 grant; any other document stays as it is."""
    match document:
        case {"version": 1, "gpus": [*shares]} if all(isinstance(share, dict) for share in shares):
            renamed = [
                {_NAMES_1_TO_2.get(name, name): value for name, value in share.items()}
                for share in shares
            ]
            return document | {"version": GRANT_VERSION, "gpus": renamed}
    return document


def process_start_time(pid: int) -> int | None:
    """Clock ticks from boot to a process's start; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses, and may itself have any of them.
    return int(stat.rpartition(")")[2].split()[19])
