"""Placement by locality: Algorithm 1 of the KubeShare paper (HPDC '20, 4.3), as meant.

Comments name the lines of the printed algorithm ("Line 9", "Lines 4-6"). It has
slips; where its text and its print differ the text is followed:

* lines 4-6 print "return -1": here the demand waits, and is told why;
* lines 5 and 19 print a subset: one label is asked, so it is membership;
* line 9 and 10 do not check that the demand fits the device: here it must;
* line 17 prints "false": it is the idle devices that pass unfiltered, and also
  they must have the room;
* line 24 opens a device also where no physical GPU is left: here it waits.

The loop of lines 15-17 is not there: an index of the ledger knows which devices
pass (:mod:`kubeshare.core.policies.locality.index`). Nor is anything recorded here:
lines 7, 11-13 and 25 are :func:`kubeshare.core.decision.commit`.

Ties never depend on an order of listing. Best fit is the least compute left,
then the least memory left, then the id; worst fit the most of both, then the id.
"""

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality import several_gpus
from kubeshare.core.policies.locality.index import IDLE, LocalityIndex
from kubeshare.core.policies.locality.reasons import tell, why_not

RESERVED_PREFIX: Final = "vgpu-"
"""What the ids of generated vGPUs begin with; nobody else may make one up."""


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to a device of the ledger or to a new one, ``pending`` until something
        changes, or ``rejected`` because no GPU of this cluster could ever take it.
    """
    index = ledger.index(LocalityIndex)
    told = partial(tell, ledger.snapshot(), demand)
    impossible = _never(ledger, index, demand)
    if impossible:
        why = LazyReasons(partial(told, never=impossible))
        return Decision(outcome="rejected", reasons=why, field=impossible[0])
    if demand.count > 1:
        return several_gpus.decide(ledger, demand, _new_ids)
    taken, or_new = _existing(ledger, index, demand)
    if taken is not None:
        return Decision(
            outcome="bound",
            node=taken.node,
            devices=(taken.id,),
            reasons=LazyReasons(partial(told, taken=taken.id)),
        )
    home = index.home(demand) if or_new else None
    if home is not None:
        new = _new_device(ledger, demand, ledger.nodes[home])
        return Decision(
            outcome="bound",
            node=home,
            devices=(new.id,),
            new=(new,),
            reasons=LazyReasons(partial(told, home=home)),
        )
    return Decision(outcome="pending", reasons=LazyReasons(told))


def _existing(ledger: Ledger, index: LocalityIndex, demand: Demand) -> tuple[Device | None, bool]:
    """The device of the ledger that takes a demand, else whether a new one may be opened."""
    if demand.device_id:
        named = ledger.devices.get(demand.device_id)
        return (named if named and _takes(ledger, demand, named) else None), named is None
    label, exclusion = demand.affinity, demand.exclusion
    # Line 1: step 1 is for those with an affinity label.
    if label:
        # Lines 2-3: it goes where the label is, or waits.
        if label in index.carriers:
            # Lines 4-6, and line 8. Of several such devices the emptiest, as in line 23.
            on_label = ((label, exclusion, False), (label, exclusion, True))
            return index.worst_fit(demand, *on_label), False
        # Lines 9-10, and line 14.
        return index.best_fit(demand, IDLE), True
    # Step 2, lines 15-20: the exclusion chooses the groups, the rest is asked of the devices.
    # Step 3, lines 21-22: first those without an affinity label, idle ones among them.
    unlabelled = (IDLE, ("", exclusion, False), ("", exclusion, True))
    best = index.best_fit(demand, *unlabelled)
    if best is None:
        # Line 23: then those with one.
        best = index.worst_fit(demand, (None, exclusion, False), (None, exclusion, True))
    # Line 24: then a new one. Line 26.
    return best, True


def _takes(ledger: Ledger, demand: Demand, device: Device) -> bool:
    admitted = demand.nodes is None or device.node in demand.nodes
    return admitted and not why_not(ledger, demand, device)


def _new_device(ledger: Ledger, demand: Demand, home: Node) -> Device:
    """The smallest free GPU of the node that will do, as an idle vGPU."""
    gpu = min(
        (gpu for gpu in set(home.free) if not reasons.no_free_gpu((gpu,), demand)),
        key=lambda gpu: (gpu.memory_bytes, gpu.model),
    )
    return Device(
        id=demand.device_id or next(_new_ids(ledger, demand)),
        node=home.name,
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
    )


def _new_ids(ledger: Ledger, demand: Demand) -> Iterator[str]:
    """Ids that follow from the demand alone and that no device has."""
    ids = (_hashed_id(demand.uid, attempt) for attempt in count(demand.attempt))
    return (new_id for new_id in ids if new_id not in ledger.devices)


def _hashed_id(uid: str, attempt: int) -> str:
    return RESERVED_PREFIX + blake2b(f"{uid}/{attempt}".encode(), digest_size=5).hexdigest()


def _never(ledger: Ledger, index: LocalityIndex, demand: Demand) -> tuple[str, str] | None:
    """The field by which no GPU of this cluster can ever take the demand, and why."""
    wanted = demand.device_id
    if demand.count > 1 and wanted:
        return "id", f"{wanted} is one GPU, and {demand.count} are asked"
    if wanted.startswith(RESERVED_PREFIX) and wanted not in ledger.devices:
        return "id", f"there is no vGPU {wanted}, and new ones of that prefix are not for users"
    if demand.count > 1:
        return feasibility.why(ledger, demand)
    return feasibility.why_on_any(index.kinds, demand)
