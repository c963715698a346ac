"""How near each other the members of a gang are placed."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name

Near: TypeAlias = Literal["switch", "node", "nodes"]
"""All under one switch, all on one node, or on as few nodes and domains of nodes as possible."""

WORDS: Final[Mapping[Near, str]] = {
    "switch": " under one switch",
    "node": " on one node",
    "nodes": "",
}
"""What follows a number of members that fit, for people."""


class Nearness(msgspec.Struct, frozen=True, kw_only=True):
    """How near the members of a gang must be to each other.

    Attributes:
        near: what the gang asks for.
        mates: the uids of the members that are placed already.
    """

    near: Near
    mates: frozenset[str] = frozenset()

    @property
    def binds(self) -> bool:
        """Whether members that are not near are not placed; else nearness only ranks."""
        return self.near != "nodes"

    def home(self, ledger: Ledger) -> list[Device]:
        """The devices of the members that are placed already."""
        held = {device_id for uid in self.mates for device_id in ledger.held_by(uid)}
        return [ledger.devices[device_id] for device_id in sorted(held)]

    def apart(self, ledger: Ledger) -> str:
        """Why no further member can be near those that are placed; ``""`` if one can."""
        nodes = sorted({device.node for device in self.home(ledger)}, key=natural_name)
        if not self.binds or len(nodes) < 2:
            return ""
        return f"its members are on {' and '.join(nodes)} already"
