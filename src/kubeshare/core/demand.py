"""A demand for GPUs, independent of the manifest it was written in."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, format_share

__all__ = ["NOTHING", "Demand", "LabelScope", "Memory", "Share", "groups_of", "qualify"]

LabelScope: TypeAlias = Literal["cluster", "namespace"]
"""Whether equal labels are the same across the cluster, or only within a namespace."""

NOTHING: Final = Memory(bytes=0)


class Share(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one of several different shares of a demand asks of a GPU.

    Attributes:
        name: identifies the share in its demand; "" is the only share of the short form.
        request_micros: micros guaranteed and reserved; 0 guarantees nothing.
        limit_micros: micros never exceeded, at least the request; enforced on the node only.
        limit_alone_micros: micros never exceeded while the share is the GPU's only holder, at
            least the limit; None is the limit.
        latency_sensitive: whether its launches are served promptly, within its request.
        memory: reserved on each GPU.
        count: the number of different GPUs.
        containers: the names of the containers that use it; empty is every container.
        proportional: as in :class:`Demand`.

    Raises:
        InvalidValueError: an amount is out of range, or ``count`` is below one.
    """

    name: str = ""
    request_micros: int = 0
    limit_micros: int = MICROS
    limit_alone_micros: int | None = None
    latency_sensitive: bool = False
    memory: Memory = NOTHING
    count: int = 1
    containers: tuple[str, ...] = ()
    proportional: bool = False

    def __post_init__(self) -> None:
        _check_amounts(self)


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One demand for a share of one GPU, for equal shares of `count` GPUs, or for `shares`.

    The first two are the short form: the demand itself has the amounts of its only share. The
    different shares of a demand have their own amounts, and the demand has none. A policy
    places all shares or none, on one node and on GPUs of one model.

    Attributes:
        uid: identifies the requester, unique in the cluster for ever.
        name: the requester's name, for display.
        namespace: the requester's namespace, "" without one.
        request_micros: micros guaranteed and reserved; 0 guarantees nothing.
        limit_micros: micros never exceeded, at least the request; enforced on the node only.
        limit_alone_micros: micros never exceeded while the demand is the GPU's only holder, at
            least the limit; None is the limit.
        latency_sensitive: whether its launches are served promptly, within its request.
        memory: reserved on each GPU.
        affinity: use a GPU with this label, or else give an idle GPU the label; "" is absent.
        anti_affinity: never share with a holder of the same label; "" is absent.
        exclusion: share only with holders of the same label, or absent with absent.
        device_id: the GPUID of the vGPU that must be used; "" leaves it to the policy.
        device_nodes: the nodes that the author named beside that GPUID; None if none. A vGPU
            of another node is another one.
        count: the number of different GPUs.
        shares: the different shares; empty in the short form.
        model: the GPU model that must be used; "" is any.
        nodes: the nodes that may be used; None is any.
        attempt: how often the demand has been placed before; each attempt gets new ids.
        group: demands of one group and namespace stay on one GPU model; "" is none.
        service: what controls the requester, such as ``Deployment/web``: its group where a quota
            concerns it and ``group`` is ""; "" is none.
        labels_qualified: whether the labels are written ``namespace/label`` (:meth:`qualified`).
        proportional: the request is the same share of compute as the demand's memory is of the
            GPU's memory; ``request_micros`` is then 0.
        family: the manifest family whose dedicated nodes and policy the demand uses; "" for
            those of SharePods and of pods with KubeShare's annotations.

    Raises:
        InvalidValueError: an amount is out of range, ``count`` is below one, or the demand has
            ``shares`` that are not named differently, or amounts besides ``shares``.
    """

    uid: str
    name: str
    namespace: str = ""
    request_micros: int = 0
    limit_micros: int = MICROS
    limit_alone_micros: int | None = None
    latency_sensitive: bool = False
    memory: Memory = NOTHING
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    device_id: str = ""
    device_nodes: frozenset[str] | None = None
    count: int = 1
    shares: tuple[Share, ...] = ()
    model: str = ""
    nodes: frozenset[str] | None = None
    attempt: int = 0
    group: str = ""
    service: str = ""
    proportional: bool = False
    family: str = ""
    labels_qualified: bool = False

    def __post_init__(self) -> None:
        _check_amounts(self)
        if self.shares:
            self._check_shares()

    def compute_on(self, total: int) -> int:
        """The micros to reserve on a GPU of `total` bytes of memory; a share is rounded down."""
        return self.memory.on(total) * MICROS // total if self.proportional else self.request_micros

    def per_gpu(self) -> tuple[Share, ...]:
        """One share for each holder that the demand becomes.

        A share with a count is repeated. A decision and the ledger use the same order.
        """
        shares = self.shares or (_only_share(self),)
        return tuple(share for share in shares for _ in range(share.count))

    def named(self, name: str) -> Share | None:
        """The share of a name, "" for the only one of the short form; None if there is none."""
        shares = self.shares or (_only_share(self),)
        return next((share for share in shares if share.name == name), None)

    def reduced_to(self, share: Share) -> "Demand":
        """The demand for one of its shares only, in the short form."""
        return msgspec.structs.replace(
            self,
            request_micros=share.request_micros,
            limit_micros=share.limit_micros,
            limit_alone_micros=share.limit_alone_micros,
            latency_sensitive=share.latency_sensitive,
            memory=share.memory,
            count=share.count,
            proportional=share.proportional,
            shares=(),
        )

    def reduced(self) -> tuple["Demand", ...]:
        """The demand for each of its shares, in the short form; itself if it has that form."""
        return tuple(map(self.reduced_to, self.shares)) or (self,)

    def different_gpus(self) -> int:
        """The least number of different GPUs that the demand needs, all of one node."""
        if not self.shares:
            return self.count
        group, sizes = groups_of(self.shares), Counter[str]()
        for share in self.shares:
            sizes[group[share.name]] += share.count
        return max(sizes.values())

    def kind(self) -> "Demand":
        """The demand without what only identifies it: equal kinds fit on the same GPUs."""
        return msgspec.structs.replace(
            self,
            uid="",
            name="",
            namespace="",
            limit_micros=MICROS,
            limit_alone_micros=None,
            latency_sensitive=False,
            nodes=None,
            attempt=0,
            group="",
            service="",
        )

    def qualified(self) -> "Demand":
        """The demand with its labels as ``namespace/label``, which differ between namespaces."""
        if self.labels_qualified:
            return self
        return msgspec.structs.replace(
            self,
            affinity=qualify(self.namespace, self.affinity),
            anti_affinity=qualify(self.namespace, self.anti_affinity),
            exclusion=qualify(self.namespace, self.exclusion),
            labels_qualified=True,
        )

    def _check_shares(self) -> None:
        names = {share.name for share in self.shares}
        if "" in names or len(names) < len(self.shares):
            raise InvalidValueError("shares", "each share needs a name of its own")
        if self.device_id:
            raise InvalidValueError("id", "a demand of several shares cannot ask for one vGPU")
        if _only_share(self) != Share():
            raise InvalidValueError(
                "shares", "each share has amounts of its own, and so has the demand"
            )


def groups_of(shares: Iterable[Share]) -> dict[str, str]:
    """Name of each share of one demand → its group: the first name of the shares in it.

    Shares that a container has in common are of one group, also through further shares, and a
    share that names no containers is used by all. The shares of a group, and the GPUs of their
    counts, are on different GPUs: a container sees each of its GPUs once, and the node attaches a
    group as a whole. Shares of different groups may be on one GPU.
    """
    names: list[set[str]] = []
    users: list[set[str]] = []  # the containers of the same group; no two have one in common
    shares = tuple(shares)
    used_by_all = any(not share.containers for share in shares)
    for share in shares:
        containers = {""} if used_by_all else set(share.containers)
        joined = [at for at, others in enumerate(users) if not containers.isdisjoint(others)]
        name = {share.name}.union(*(names[at] for at in joined))
        containers.update(*(users[at] for at in joined))
        names = [*(each for at, each in enumerate(names) if at not in joined), name]
        users = [*(each for at, each in enumerate(users) if at not in joined), containers]
    return {name: min(group) for group in names for name in group}


def qualify(namespace: str, label: str) -> str:
    """A label as ``namespace/label``; an absent label stays absent."""
    return f"{namespace}/{label}" if label else ""


def _only_share(demand: Demand) -> Share:
    """The share of a demand in the short form."""
    return Share(
        request_micros=demand.request_micros,
        limit_micros=demand.limit_micros,
        limit_alone_micros=demand.limit_alone_micros,
        latency_sensitive=demand.latency_sensitive,
        memory=demand.memory,
        count=demand.count,
        proportional=demand.proportional,
    )


def _check_amounts(share: Share | Demand) -> None:
    request, limit, alone = share.request_micros, share.limit_micros, share.limit_alone_micros
    if not 0 <= limit <= MICROS:
        raise InvalidValueError("limit", f"{limit} millionths is not from 0 to 1000000")
    if request < 0:
        raise InvalidValueError("request", f"{request} millionths is negative")
    if request > limit:
        raise InvalidValueError(
            "request", f"{format_share(request)} is more than the limit {format_share(limit)}"
        )
    if alone is not None and not limit <= alone <= MICROS:
        raise InvalidValueError(
            "limitAlone",
            f"{format_share(alone)} is not from the limit {format_share(limit)} to 1",
        )
    if share.count < 1:
        raise InvalidValueError("count", f"{share.count} is less than one GPU")
