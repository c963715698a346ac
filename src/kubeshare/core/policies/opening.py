"""Creates new vGPUs for free physical GPUs, for every policy."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger

RESERVED_PREFIX: Final = "vgpu-"
"""The prefix of generated ids; users cannot name new vGPUs with it."""


def new_ids(ledger: Ledger, demand: Demand) -> Iterator[str]:
    """The requested id, or unused ids that depend on the demand only."""
    if demand.device_id:
        yield demand.device_id
        return
    ids = (_hashed_id(demand.uid, attempt) for attempt in count(demand.attempt))
    yield from (new_id for new_id in ids if new_id not in ledger.devices)


def _hashed_id(uid: str, attempt: int) -> str:
    return RESERVED_PREFIX + blake2b(f"{uid}/{attempt}".encode(), digest_size=5).hexdigest()
