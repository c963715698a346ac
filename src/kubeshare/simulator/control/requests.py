"""What is asked of the fake server, and how it refuses."""

from dataclasses import dataclass
from typing import Any

from kubeshare.simulator.control.storage import ObjectPath, Raw


@dataclass(frozen=True)
class Request:
    """One request as the server understood it; ``resource`` is ``plural[/subresource]``."""

    verb: str
    resource: str
    place: ObjectPath
    at: float
    query: dict[str, str]
    body: Any
    content_type: str
    client: str

    @property
    def subresource(self) -> str:
        """The part after the slash."""
        return self.resource.partition("/")[2]

    @property
    def is_write(self) -> bool:
        """Whether it asks for a change."""
        return self.verb in {"create", "delete", "patch"}


class RefusalError(Exception):
    """An error answer."""

    def __init__(
        self, code: int, reason: str, message: str, causes: list[Raw] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: Raw = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }
        if causes:
            self.status["details"] = {"name": "its name", "kind": "its kind", "causes": causes}
