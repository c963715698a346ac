"""What only a run of the control tier measures."""

import msgspec


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Times from the decision about a pod, in seconds.

    Attributes:
        count: of pods.
        mean_s, p50_s, p99_s, max_s: over these pods.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float


class ControlNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the control tier measures beyond the numbers of the core tier.

    Attributes:
        created: from the first holder of a job to its pod.
        ran: from the first holder of a job until its pod runs.
        writes: program → verb and resource → requests that change something.
        reads: program → such requests that change nothing.
        conflicts: program → verb and resource → refusals because another write came before.
        restarts: program → how often it was killed and started again.
        errors: what programs logged with an exception, which no run should have; the first ten.
    """

    created: Latency
    ran: Latency
    writes: dict[str, dict[str, int]]
    reads: dict[str, int]
    conflicts: dict[str, dict[str, int]]
    restarts: dict[str, int]
    errors: list[str]
