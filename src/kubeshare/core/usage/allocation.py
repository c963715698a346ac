"""What one allocation reserved of GPUs, and what it used."""

from msgspec import Struct


class AllocatedShare(Struct, frozen=True, kw_only=True):
    """What was allocated of one GPU.

    Attributes:
        uuid: of the GPU.
        model: of the GPU.
        request_micros: the guaranteed share of its time, in millionths.
        memory_bytes: the memory.
        exclusive: whether the demand has an exclusion label, which is held as the whole GPU.
        used_ns: GPU time that was charged.
        price_micros: of an hour of the whole GPU, in millionths of the currency; None without one.
    """

    uuid: str
    model: str
    request_micros: int
    memory_bytes: int
    exclusive: bool = False
    used_ns: int = 0
    price_micros: int | None = None


class Allocation(Struct, frozen=True, kw_only=True):
    """The account of one allocation. Times are ns since 1970, UTC.

    Attributes:
        namespace: of the pod.
        pod: its name.
        owner: the controller of the demand, as ``KIND/NAME``.
        group: of the demand, for quotas; "" for none.
        node: where it ran.
        start_ns: when the node granted it.
        end_ns: until when it is accounted for.
        ended: whether the node has released it.
        complete: whether nothing is missing; of what has not ended, nothing until ``end_ns``.
        shares: one for each GPU.
    """

    namespace: str
    pod: str
    owner: str
    group: str
    node: str
    start_ns: int
    end_ns: int
    ended: bool
    complete: bool
    shares: tuple[AllocatedShare, ...]
