"""The identity of a requester, from its metadata."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshare.dialects.requester import groups


class RequesterRef(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a requester, from its metadata; ``group`` and ``service`` for quotas."""

    uid: str
    name: str
    namespace: str
    group: str
    service: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "RequesterRef":
        """The requester with this metadata; without a uid, its name is used instead.

        Raises:
            InvalidValueError: the annotation for its group is not acceptable.
        """
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        return cls(
            uid=metadata.get("uid") or f"{namespace}/{name}",
            name=name,
            namespace=namespace,
            group=groups.group_of(metadata),
            service=groups.service_of(metadata),
        )

    def fields(self) -> dict[str, Any]:
        """The fields of the demand that say whose it is."""
        return msgspec.structs.asdict(self)
