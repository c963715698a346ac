"""Placement by locality: Algorithm 1 of the KubeShare paper (HPDC '20, 4.3), as meant.

Comments name the lines of the printed algorithm. It has slips; where its text
and its print differ the text is followed:

* lines 4-6 print "return -1": here the demand waits, and is told why;
* lines 5 and 19 print a subset: one label is asked, so it is membership;
* line 9 and 10 do not check that the demand fits the device: here it must;
* line 17 prints "false": it is the idle devices that pass unfiltered, and also
  they must have the room;
* line 24 opens a device also where no physical GPU is left: here it waits.

Ties never depend on an order of listing. Best fit is the least compute left,
then the least memory left, then the id; worst fit the most of both, then the id.
"""

from hashlib import blake2b
from itertools import count
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, FreeGpu, Node, natural
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies.locality_search import Search

RESERVED_PREFIX: Final = "vgpu-"
"""What the ids of generated vGPUs begin with; nobody else may make one up."""


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to a device of the ledger or to a new one, ``pending`` until something
        changes, or ``rejected`` because no GPU of this cluster could ever take it.
    """
    search = Search(ledger, demand)
    never = _never(ledger, demand)
    if never:
        field, message = never
        return Decision(
            outcome="rejected",
            reasons=search.reasons(never=message) | {field: message},
            field=field,
        )
    chosen = _choose(search.fitting)
    if chosen:
        return Decision(
            outcome="bound",
            node=chosen.node,
            devices=(chosen.id,),
            reasons=search.reasons(chosen=chosen),
        )
    home = None if search.bound_to else search.home()
    if home:
        new = _new_device(ledger, demand, home)
        return Decision(
            outcome="bound",
            node=home.name,
            devices=(new.id,),
            new=(new,),
            reasons=search.reasons(home=home),
        )
    return Decision(outcome="pending", reasons=search.reasons())


def _choose(fitting: list[Device]) -> Device | None:
    """Step 3, lines 21-23."""
    unlabelled = [device for device in fitting if not device.affinities]
    if unlabelled:
        return min(unlabelled, key=_best_fit)
    return min(fitting, key=_worst_fit, default=None)


def _best_fit(device: Device) -> tuple[object, ...]:
    return (device.compute_left, device.memory_left, natural(device.id))


def _worst_fit(device: Device) -> tuple[object, ...]:
    return (-device.compute_left, -device.memory_left, natural(device.id))


def _new_device(ledger: Ledger, demand: Demand, home: Node) -> Device:
    """The smallest free GPU of the node that will do, as an idle vGPU."""
    gpu = min(
        (gpu for gpu in home.free if not reasons.no_free_gpu((gpu,), demand)),
        key=lambda gpu: (gpu.memory, gpu.model),
    )
    return Device(
        id=demand.device_id or _new_id(ledger, demand),
        node=home.name,
        model=gpu.model,
        memory=gpu.memory,
    )


def _new_id(ledger: Ledger, demand: Demand) -> str:
    """An id that follows from the demand alone and that no device has."""
    ids = (_hashed_id(demand.uid, attempt) for attempt in count(demand.attempt))
    return next(new_id for new_id in ids if new_id not in ledger.devices)


def _hashed_id(uid: str, attempt: int) -> str:
    return RESERVED_PREFIX + blake2b(f"{uid}/{attempt}".encode(), digest_size=5).hexdigest()


def _never(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field by which no GPU of this cluster can ever take the demand, and why."""
    wanted = demand.device_id
    if demand.count > 1:
        return "count", f"{demand.count} GPUs asked, and the locality policy places one"
    if wanted.startswith(RESERVED_PREFIX) and wanted not in ledger.devices:
        return "id", f"there is no vGPU {wanted}, and new ones of that prefix are not for users"
    kinds = {FreeGpu(device.model, device.memory) for device in ledger.devices.values()}
    for node in ledger.nodes.values():
        kinds |= node.kinds | set(node.free)
    if not kinds:
        # A cluster whose nodes have not been looked at yet says nothing about "ever".
        return None
    sizes = [kind.memory for kind in kinds if demand.model in ("", kind.model)]
    if not sizes:
        return "model", f"no GPU of model {demand.model} in this cluster"
    asked = demand.memory.on(max(sizes))
    if asked > max(sizes):
        has, wants = reasons.two_sizes(max(sizes), asked)
        return "memory", f"{wants} asked, and the largest GPU has {has}"
    return None
