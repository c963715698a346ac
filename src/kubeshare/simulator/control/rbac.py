"""Authorizes requests by RBAC manifests, and records which permissions are used.

No wildcards, aggregated roles or groups.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Raw = dict[str, Any]


class Permission(NamedTuple):
    """One verb on one resource (``plural[/subresource]``): the smallest piece of a role.

    ``namespace`` is that of a Role, ``""`` for a ClusterRole; ``names`` restricts it to
    objects of these names.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        named = f" named {', '.join(self.names)}" if self.names else ""
        return f"{self.verb} {resource}{named}{where}"

    def covers(self, asked: "Access") -> bool:
        """Whether the permission allows a request."""
        return (
            (self.verb, self.group, self.resource) == (asked.verb, asked.group, asked.resource)
            and self.namespace in ("", asked.namespace)
            and (not self.names or asked.name in self.names)
        )


class Access(NamedTuple):
    """What a request asks RBAC for."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {resource} {where}".rstrip()


class Authorizer:
    """Decides about the requests of one service account.

    Args:
        manifests: all roles and bindings, possibly among other objects.
        account: the name of the ServiceAccount.

    Attributes:
        permissions: all that the account may do.
        used: the permissions that allowed a request.
        refused: the requests that none allowed.
    """

    def __init__(self, manifests: Iterable[Raw], account: str) -> None:
        self.account = account
        self.permissions = tuple(_permissions(list(manifests), account))
        self._of_kind: defaultdict[tuple[str, str, str], list[Permission]] = defaultdict(list)
        for each in self.permissions:
            self._of_kind[each.verb, each.group, each.resource].append(each)
        self.used: set[Permission] = set()
        self.refused: set[Access] = set()

    def allow(self, asked: Access) -> bool:
        """Whether a request is allowed; records the permissions used, or the refusal."""
        candidates = self._of_kind.get((asked.verb, asked.group, asked.resource), ())
        found = [permission for permission in candidates if permission.covers(asked)]
        self.used.update(found)
        if not found:
            self.refused.add(asked)
        return bool(found)

    @property
    def unused(self) -> set[Permission]:
        """The permissions that no request has used."""
        return set(self.permissions) - self.used


def _permissions(manifests: list[Raw], account: str) -> Iterator[Permission]:
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in manifests
        if each["kind"] in ("Role", "ClusterRole")
    }
    for binding in manifests:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if account not in [each["name"] for each in binding["subjects"]]:
            continue
        namespace = binding["metadata"].get("namespace", "")
        of, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        for rule in roles[of, namespace if of == "Role" else "", name]["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Permission(verb, group, resource, namespace, names)
