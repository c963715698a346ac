"""What the fake API server answers about itself: version, kinds, gates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Final

from kubeshare.kube import resources
from kubeshare.kube.resources import Resource
from kubeshare.simulator.control.requests import Answer
from kubeshare.simulator.control.storage import wall_clock

_KINDS: Final[tuple[Resource[Any], ...]] = tuple(
    each for each in vars(resources).values() if isinstance(each, Resource)
)


@dataclass
class Discovery:
    """What a server of some version and configuration serves.

    Attributes:
        version: of Kubernetes.
        gates: by feature gate, whether it is on.
        unserved: kinds that this server does not have.
        texts: by path, the log of a pod, or what a program answers through the API server.
    """

    version: str = "v1.36.3"
    gates: Mapping[str, bool] = field(default_factory=dict)
    unserved: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)

    def answer(self, target: str) -> Answer | None:
        """The answer to a request about the server; None for a request about objects."""
        path = target.partition("?")[0]
        if (text := self.texts.get(path)) is not None:
            return Answer(200, text.encode())
        match path.strip("/").split("/"):
            case ["version"]:
                moment = datetime.fromisoformat(wall_clock())
                answer = Answer.of(200, {"gitVersion": self.version})
                answer.headers[b"date"] = format_datetime(moment, usegmt=True).encode()
                return answer
            case ["metrics"]:
                lines = (
                    f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {on:d}\n'
                    for name, on in self.gates.items()
                )
                return Answer(200, "".join(lines).encode())
            case ["api", version]:
                return self._kinds(version)
            case ["apis", group, version]:
                return self._kinds(f"{group}/{version}")
            case _:
                return None

    def _kinds(self, group_version: str) -> Answer:
        served = [
            {"kind": each.kind, "name": each.plural}
            for each in _KINDS
            if each.api_version == group_version and each.kind not in self.unserved
        ]
        return Answer.of(200 if served else 404, {"kind": "APIResourceList", "resources": served})
