"""A short vocabulary for tests of the core: shares as people write them, memory in MiB."""

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.units import MI, parse_share

GPU_MEMORY = 1000 * MI
GPUSHARE_MEMORY = 16276
"""Of a GPU of gpushare's examples, in its units."""


def share(text: str) -> int:
    return parse_share(text, "share")


def a_demand(
    name: str,
    request: str = "0.5",
    *,
    memory: int = 0,
    share_of_memory: str = "",
    **fields: object,
) -> Demand:
    """A demand whose uid is its name; labels and the rest as fields."""
    amount = Memory(micros=share(share_of_memory)) if share_of_memory else Memory(memory * MI)
    known = {
        "uid": name,
        "name": name,
        "request_micros": share(request),
        "memory": amount,
    }
    return Demand(**(known | fields))  # type: ignore[arg-type]  # fields of Demand by name


def a_holder(name: str, request: str = "0.5", *, memory: int = 0, **labels: object) -> Holder:
    amounts = {"request_micros": share(request), "memory_bytes": memory * MI}
    known = {"demand": name, "name": name} | amounts
    return Holder(**(known | labels))  # type: ignore[arg-type]  # fields of Holder by name


def a_device(device_id: str, *holders: Holder, node: str = "n1", **fields: object) -> Device:
    known = {"id": device_id, "node": node, "memory_bytes": GPU_MEMORY, "holders": holders}
    return Device(**(known | fields))  # type: ignore[arg-type]  # fields of Device by name


def a_node(name: str = "n1", free: int = 0, memory: int = GPU_MEMORY, model: str = "") -> Node:
    return Node(name, (FreeGpu(model, memory),) * free)


def a_gpu(
    node: str, index: int, *taken: int, memory: int = GPUSHARE_MEMORY, model: str = ""
) -> Device:
    """A numbered GPU and what each of its holders has of its memory."""
    holders = tuple(
        Holder(
            demand=f"{node}/{index}/{number}",
            name=f"q{number}",
            request_micros=size * 1_000_000 // memory,
            memory_bytes=size,
        )
        for number, size in enumerate(taken)
    )
    return Device(
        id=f"{node}/{index}",
        node=node,
        index=index,
        model=model,
        memory_bytes=memory,
        holders=holders,
    )


def a_pod(name: str, memory: int, **fields: object) -> Demand:
    """What a gpushare pod asks for: memory, and compute that follows it."""
    known = {
        "uid": name,
        "name": name,
        "request_micros": 0,
        "memory": Memory(bytes=memory),
        "proportional": True,
    }
    return Demand(**(known | fields))  # type: ignore[arg-type]  # fields of Demand by name
