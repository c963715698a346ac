"""Reads the API server's audit log of KubeShare's programs.

Only requests of service accounts of KubeShare's namespace are recorded: who asked for
what, and whether RBAC allowed it. What was sent and answered is not.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct, field

from kubeshare.api.types.constants import NAMESPACE

_LOG = "audit.log"
_POLICY = "audit-policy.yaml"
_MEGABYTES = 2000
_DECISION = "authorization.k8s.io/decision"


class Target(Struct, frozen=True, rename="camel"):
    """What a request is about; ``subresource`` and ``name`` are ``""`` where there is none."""

    resource: str
    api_group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Answer(Struct, frozen=True):
    """The HTTP status."""

    code: int = 0


class Account(Struct, frozen=True):
    """Who asked."""

    username: str


class Request(Struct, frozen=True, kw_only=True, rename="camel"):
    """One request; of a watch, its beginning or its end.

    ``received`` is when it came, RFC 3339 with microseconds.
    """

    verb: str
    stage: str
    user: Account
    target: Target | None = field(default=None, name="objectRef")
    answer: Answer = field(default_factory=Answer, name="responseStatus")
    received: str = field(default="", name="requestReceivedTimestamp")
    annotations: dict[str, str] = {}

    @property
    def account(self) -> str:
        """The name of the ServiceAccount."""
        return self.user.username.rpartition(":")[2]

    @property
    def refused(self) -> bool:
        """RBAC did not allow it."""
        return self.annotations.get(_DECISION) == "forbid"


def arguments(folder: Path) -> list[str]:
    """The part of the API server's command line; writes the policy that it names."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]}],
    }
    path = folder / _POLICY
    path.write_text(yaml.safe_dump(policy))
    return [
        f"--audit-policy-file={path}",
        f"--audit-log-path={folder / _LOG}",
        f"--audit-log-maxsize={_MEGABYTES}",
    ]


def read(folder: Path) -> Iterator[Request]:
    """All requests so far, in the order in which they were answered.

    Args:
        folder: of the API server's settings.
    """
    decoder = msgspec.json.Decoder(Request)
    with (folder / _LOG).open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
