"""GPUIDs: validity, generated ones, and the names of their objects.

A vGPU is identified by its node and its GPUID, as in the published versions: ``gpu0`` of two
nodes are two GPUs. Its object has the GPUID as its name where that is a valid name and no other
object has it; else the name is a hash of node and GPUID.
"""

import re
from collections.abc import Container, Iterator
from hashlib import blake2b
from itertools import count
from typing import Final

RESERVED_PREFIX: Final = "vgpu-"
"""The prefix of generated GPUIDs and names; an author's new GPUID may not have it."""
MAX_LENGTH: Final = 63

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
"""Names of vGPUs: the name of a placeholder pod and the value of a label contain one."""


def is_valid(gpuid: str) -> bool:
    """Whether it is 1 to 63 printable characters, of which a space is one."""
    return 0 < len(gpuid) <= MAX_LENGTH and gpuid.isprintable()


def is_generated(gpuid: str) -> bool:
    """Whether no author has chosen it."""
    return gpuid.startswith(RESERVED_PREFIX)


def object_name(node: str, gpuid: str, taken: Container[str]) -> str:
    """The name of the object of a new vGPU.

    Args:
        node: the node of the vGPU.
        gpuid: its GPUID, which is not in use on that node.
        taken: the names of the other vGPUs.
    """
    if _NAME.fullmatch(gpuid) and gpuid not in taken:
        return gpuid
    return hashed_name(node, gpuid)


def hashed_name(node: str, gpuid: str) -> str:
    """The name of a vGPU whose GPUID cannot be the name; longer than generated GPUIDs."""
    return RESERVED_PREFIX + blake2b(f"{node}\0{gpuid}".encode(), digest_size=10).hexdigest()


def generated(demand_uid: str, attempt: int, taken: Container[str]) -> Iterator[str]:
    """GPUIDs for new vGPUs that no vGPU has as its name; they depend on the demand only."""
    for number in count(attempt):
        digest = blake2b(f"{demand_uid}/{number}".encode(), digest_size=5)
        new = RESERVED_PREFIX + digest.hexdigest()
        if new not in taken:
            yield new
