"""A demand for GPUs, independent of the manifest it was written in."""

import msgspec

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, format_share

__all__ = ["Demand", "Memory"]


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """One demand for a share of one GPU (or equal shares of `count` GPUs).

    Attributes:
        uid: identifies the requester, unique in the cluster for ever.
        name: the requester's name, for display.
        namespace: the requester's namespace, "" without one.
        request_micros: micros guaranteed and reserved; 0 guarantees nothing.
        limit_micros: micros never exceeded, at least the request; enforced on the node only.
        memory: reserved on each GPU.
        affinity: use a GPU with this label, or else give an idle GPU the label; "" is absent.
        anti_affinity: never share with a holder of the same label; "" is absent.
        exclusion: share only with holders of the same label, or absent with absent.
        device_id: the vGPU that must be used; "" leaves it to the policy.
        count: the number of different GPUs.
        model: the GPU model that must be used; "" is any.
        nodes: the nodes that may be used; None is any.
        attempt: how often the demand has been placed before; each attempt gets new ids.
        group: demands of one group and namespace stay on one GPU model; "" is none.
        proportional: the request is the same share of compute as the demand's memory is of the
            GPU's memory; ``request_micros`` is then 0.

    Raises:
        InvalidValueError: request or limit out of range, or ``count`` below one.
    """

    uid: str
    name: str
    namespace: str = ""
    request_micros: int
    limit_micros: int = MICROS
    memory: Memory
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    device_id: str = ""
    count: int = 1
    model: str = ""
    nodes: frozenset[str] | None = None
    attempt: int = 0
    group: str = ""
    proportional: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.limit_micros <= MICROS:
            raise InvalidValueError(
                "limit", f"{self.limit_micros} millionths is not from 0 to 1000000"
            )
        if self.request_micros < 0:
            raise InvalidValueError("request", f"{self.request_micros} millionths is negative")
        if self.request_micros > self.limit_micros:
            raise InvalidValueError(
                "request",
                f"{format_share(self.request_micros)} is more than the limit "
                f"{format_share(self.limit_micros)}",
            )
        if self.count < 1:
            raise InvalidValueError("count", f"{self.count} is less than one GPU")

    def compute_on(self, total: int) -> int:
        """The micros to reserve on a GPU of `total` bytes of memory; a share is rounded down."""
        return self.memory.on(total) * MICROS // total if self.proportional else self.request_micros
