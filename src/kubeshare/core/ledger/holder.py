"""The holder: one demand's share of one vGPU."""

from operator import attrgetter
from typing import Final

import msgspec

from kubeshare.core.demand import Demand, Share, qualify
from kubeshare.core.units import MICROS

MAX_HOLDERS: Final = 128
"""The most holders that one vGPU may have; the schema of the VGPU object says the same."""

DEMAND_UID: Final = attrgetter("demand")

HOLDER_KEY: Final = attrgetter("demand", "share")
"""What identifies a holder of a device; the holders are sorted by it."""


# A holder refers to nothing that could refer back to it, so the garbage collector need not
# traverse the holders of a whole cluster: gc=False.
class Holder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One demand's share of a device; it mirrors an entry of a VGPU's ``status.holders``.

    Attributes:
        demand: the uid of the demand.
        name: the name of the demand, for display.
        share: the name of its share; "" if the demand has only one.
        request_micros: micros reserved.
        limit_micros: micros never exceeded.
        limit_alone_micros: micros never exceeded while it is the only holder; None is the limit.
        latency_sensitive: whether its launches are served promptly, within its request.
        memory_bytes: bytes reserved.
        affinity, anti_affinity, exclusion: the labels of the demand; "" is absent.
        namespace: the namespace of the demand, by which quotas count.
        group: the group of the demand, or else its service.
        labels_qualified: whether the labels are written ``namespace/label``.
    """

    demand: str
    name: str
    share: str = ""
    request_micros: int
    limit_micros: int = MICROS
    limit_alone_micros: int | None = None
    latency_sensitive: bool = False
    memory_bytes: int
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    namespace: str = ""
    group: str = ""
    labels_qualified: bool = False

    @classmethod
    def of(cls, demand: Demand, gpu_memory_bytes: int) -> "Holder":
        """The holder that a demand in the short form becomes; a share of memory becomes bytes."""
        return cls(
            demand=demand.uid,
            name=demand.name,
            request_micros=demand.compute_on(gpu_memory_bytes),
            limit_micros=demand.limit_micros,
            limit_alone_micros=demand.limit_alone_micros,
            latency_sensitive=demand.latency_sensitive,
            memory_bytes=demand.memory.on(gpu_memory_bytes),
            affinity=demand.affinity,
            anti_affinity=demand.anti_affinity,
            exclusion=demand.exclusion,
            namespace=demand.namespace,
            group=demand.group or demand.service,
            labels_qualified=demand.labels_qualified,
        )

    def qualified(self) -> "Holder":
        """The holder with its labels as ``namespace/label``, which differ between namespaces."""
        if self.labels_qualified:
            return self
        return msgspec.structs.replace(
            self,
            affinity=qualify(self.namespace, self.affinity),
            anti_affinity=qualify(self.namespace, self.anti_affinity),
            exclusion=qualify(self.namespace, self.exclusion),
            labels_qualified=True,
        )

    @classmethod
    def of_share(cls, demand: Demand, share: Share, gpu_memory_bytes: int) -> "Holder":
        """The holder that one share of a demand becomes on a GPU."""
        if not share.name:
            return cls.of(demand, gpu_memory_bytes)
        holder = cls.of(demand.reduced_to(share), gpu_memory_bytes)
        return msgspec.structs.replace(holder, share=share.name)
