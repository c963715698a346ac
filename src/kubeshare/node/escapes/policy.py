"""The policy of this node towards processes that bypass the device library.

The option ``--escapes`` says so for all nodes; a label says it for one node, and so for the nodes
of a pool that share a label.
"""

from typing import Final, Literal, get_args

from kubeshare.api.types.constants import LABEL_ESCAPES
from kubeshare.api.types.core_v1 import NODES, Node
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference

EscapePolicy = Literal["report", "kill"]

POLICIES: Final[tuple[EscapePolicy, ...]] = get_args(EscapePolicy)


class NodeEscapePolicy:
    """The policy of one node.

    Args:
        default: in force where the label is missing or says neither.
        events: reports a label that says neither.
    """

    def __init__(self, default: EscapePolicy, events: EventRecorder) -> None:
        self._default = default
        self._events = events
        self._text: str | None = None
        self._policy = default

    def now(self) -> EscapePolicy:
        """The policy in force."""
        return self._policy

    def follow(self, nodes: Reflector[Node]) -> None:
        """Read the label whenever this node changes."""
        nodes.subscribe(self._read)

    def _read(self, change: Change[Node]) -> None:
        node = change.object
        text = node.metadata.labels.get(LABEL_ESCAPES)
        if text == self._text:
            return
        self._text = text
        self._policy = self._default
        if text in POLICIES:
            self._policy = text
        elif text is not None:
            note = (
                f"its label {LABEL_ESCAPES} says {text!r}, which is neither "
                f"{' nor '.join(POLICIES)}; {self._default} is in force"
            )
            self._events.emit(reference(NODES, node), "InvalidLabel", "Reading", note, type=WARNING)
