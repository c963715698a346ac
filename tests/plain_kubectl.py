"""Executes the simple commands of kubectl by requests, without a process for each.

A process of kubectl costs a fifth of a second of a CPU, which most tests on an API server would
pay several times to learn how the server decides. What this module does not know, kubectl does.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml
from msgspec import Struct, field

from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

Raw = dict[str, Any]

_GROUPS: Final = (
    "v1",
    "kubeshare.nthu/v1",
    "resource.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "policy/v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
)
"""Where the names of kinds are looked up, in this order."""
_WITH_VALUE: Final = {
    *("-n", "--namespace", "-f", "-o", "-p", "--type", "--subresource", "--grace-period"),
    *("--wait", "--dry-run", "--as", "--as-group", "--clusterrole", "--user"),
}
_WITHOUT_VALUE: Final = {"--force", "--all", "--ignore-not-found", "--overwrite"}
_CONTENT: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_FIELD: Final = re.compile(r"jsonpath=\{((?:\.\w+)+)\}")
"""One field, as ``jsonpath={.metadata.name}``."""
_BINDING: Final = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}


class UnknownCommandError(Exception):
    """A command that only kubectl itself executes."""


class Kind(Struct, frozen=True):
    """A kind of object, as the API server describes it."""

    group_version: str
    plural: str
    singular: str
    namespaced: bool

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The path of a collection, or of an object."""
        root = "/api/v1" if self.group_version == "v1" else f"/apis/{self.group_version}"
        where = f"namespaces/{namespace}" if self.namespaced else ""
        return "/".join(each for each in (root, where, self.plural, name, subresource) if each)


class Command(Struct, frozen=True):
    """The words of a command, and the values of its flags."""

    words: Sequence[str]
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def flag(self, *names: str, default: str = "") -> str:
        """The last value of a flag."""
        return next((self.flags[name][-1] for name in names if name in self.flags), default)

    @property
    def namespace(self) -> str:
        return self.flag("-n", "--namespace", default="default")

    @property
    def form(self) -> str:
        """How the objects are printed."""
        return self.flag("-o")

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Whom the request is made as."""
        users = [("Impersonate-User", user) for user in self.flags.get("--as", ())]
        return users + [("Impersonate-Group", each) for each in self.flags.get("--as-group", ())]


def parse(arguments: Sequence[str]) -> Command:
    """Divide a command line into words and flags.

    Raises:
        UnknownCommandError: it has a flag or a form of output that is not known here.
    """
    words: list[str] = []
    flags: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            words.append(argument)
        elif name in _WITHOUT_VALUE and not equals:
            flags[name] = [""]
        elif name in _WITH_VALUE:
            flags.setdefault(name, []).append(value if equals else next(rest))
        else:
            raise UnknownCommandError(argument)
    command = Command(words, flags)
    if command.form not in ("", "json", "name") and not _FIELD.fullmatch(command.form):
        raise UnknownCommandError(command.form)
    return command


class PlainApiServer(ApiServer):
    """An API server whose :meth:`kubectl` starts no process for simple commands."""

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """As kubectl, with the API server's own words in errors.

        Raises:
            LabError: it failed; the message has the server's reason.
        """
        if kubeconfig is None:
            # Some test stores objects that are nested deeper than Python's decoder goes.
            with suppress(UnknownCommandError, RecursionError):
                return self._execute(parse(arguments), stdin)
        return super().kubectl(*arguments, stdin=stdin, kubeconfig=kubeconfig)

    def _execute(self, command: Command, stdin: str | None) -> str:
        verb, *words = command.words
        if verb == "create" and not words and command.flag("-f") == "-" and stdin is not None:
            return self._create(command, [*yaml.safe_load_all(stdin)])
        if verb == "create" and len(words) == 2:
            return self._create(command, [_simple(command, *words)])
        if "-f" in command.flags:
            raise UnknownCommandError(verb)
        if verb == "delete":
            return self._delete(command, *self._selected(command, words))
        if verb == "get" and command.form:
            return self._get(command, words)
        if verb in ("patch", "label", "annotate"):
            [(kind, name)] = self._selected(command, words[: 1 if "/" in words[0] else 2])
            if verb == "patch":
                return self._patch(command, kind, name, json.loads(command.flag("-p")))
            field_name = "labels" if verb == "label" else "annotations"
            changes = words[1 if "/" in words[0] else 2 :]
            return self._set_entries(command, (kind, name), field_name, changes)
        raise UnknownCommandError(verb)

    def _create(self, command: Command, manifests: Sequence[Raw]) -> str:
        made = []
        for manifest in manifests:
            kind = self._kind_of(manifest)
            namespace = manifest["metadata"].get("namespace", command.namespace)
            query = {"fieldManager": "kubectl-create", "fieldValidation": "Strict"}
            if "--dry-run" in command.flags:
                query["dryRun"] = "All"
            path = f"{kind.path(namespace)}?{urlencode(query)}"
            made.append((kind, self._send(command, "POST", path, manifest)))
        return "".join(_output(command, kind, obj, " created") for kind, obj in made)

    def _delete(self, command: Command, *selected: tuple[Kind, str]) -> str:
        options: Raw = {"propagationPolicy": "Background"}
        if "--dry-run" in command.flags:
            options["dryRun"] = ["All"]
        if "--grace-period" in command.flags or "--force" in command.flags:
            grace = int(command.flag("--grace-period", default="0"))
            options["gracePeriodSeconds"] = grace or int("--force" not in command.flags)
        for kind, name in selected:
            path = kind.path(command.namespace, name)
            try:
                self._send(command, "DELETE", path, options)
            except LabError as error:
                if "--ignore-not-found" in command.flags and "(NotFound)" in str(error):
                    continue
                raise
            if command.flag("--wait") != "false" and "--dry-run" not in command.flags:
                wait_until(lambda path=path: not self._exists(path), f"{name} to be deleted")  # type: ignore[misc]
        return ""

    def _get(self, command: Command, words: Sequence[str]) -> str:
        if len(words) == 1 and "/" not in words[0]:
            kind = self._kind(words[0])
            found: Raw = self._send(command, "GET", kind.path(command.namespace))
            if command.form != "name":
                return _output(command, kind, found)
            return "".join(_output(command, kind, each) for each in found["items"])
        [(kind, name)] = self._selected(command, words)
        path = kind.path(command.namespace, name)
        return _output(command, kind, self._send(command, "GET", path))

    def _patch(self, command: Command, kind: Kind, name: str, patch: object) -> str:
        path = kind.path(command.namespace, name, command.flag("--subresource"))
        query = {"fieldManager": "kubectl-patch", "fieldValidation": "Strict"}
        if "--dry-run" in command.flags:
            query["dryRun"] = "All"
        content_type = _CONTENT[command.flag("--type", default="strategic")]
        where = f"{path}?{urlencode(query)}"
        answer = self._send(command, "PATCH", where, patch, content_type=content_type)
        return _output(command, kind, answer, " patched")

    def _set_entries(
        self, command: Command, target: tuple[Kind, str], field_name: str, changes: Sequence[str]
    ) -> str:
        kind, name = target
        entries = {
            key.removesuffix("-") if not equals else key: value if equals else None
            for key, equals, value in (change.partition("=") for change in changes)
        }
        obj = self._send(command, "GET", kind.path(command.namespace, name))
        present = obj["metadata"].get(field_name, {})
        for key, value in entries.items():
            differs = value is not None and present.get(key, value) != value
            if differs and "--overwrite" not in command.flags:
                raise LabError(f"{key} already has a value, and --overwrite is false")
        merge = Command(command.words, {**command.flags, "--type": ["merge"]})
        return self._patch(merge, kind, name, {"metadata": {field_name: entries}})

    # What is named

    def _selected(self, command: Command, words: Sequence[str]) -> list[tuple[Kind, str]]:
        """The objects of ``KIND NAME…``, ``KIND/NAME…`` or ``KIND,KIND --all``."""
        if not words:
            raise UnknownCommandError("no kind")
        if "/" in words[0]:
            pairs = [each.split("/", 1) for each in words]
            return [(self._kind(kind), name) for kind, name in pairs]
        kinds = [self._kind(each) for each in words[0].split(",")]
        if "--all" not in command.flags:
            return [(kind, name) for kind in kinds for name in words[1:]]
        return [
            (kind, each["metadata"]["name"])
            for kind in kinds
            for each in self._send(command, "GET", kind.path(command.namespace))["items"]
        ]

    def _kind(self, word: str) -> Kind:
        """The kind of a plural, a singular or a short name."""
        for group_version in _GROUPS:
            for found in self._discovered(group_version):
                names = (found["name"], found["singularName"], *found.get("shortNames", ()))
                if word in names and "/" not in found["name"]:
                    return _read(group_version, found)
        raise UnknownCommandError(word)

    def _kind_of(self, manifest: Raw) -> Kind:
        for found in self._discovered(manifest["apiVersion"]):
            if found["kind"] == manifest["kind"] and "/" not in found["name"]:
                return _read(manifest["apiVersion"], found)
        raise UnknownCommandError(manifest["kind"])

    def _discovered(self, group_version: str) -> Iterator[Raw]:
        """The resources of a group; read again until there are some."""
        known: dict[str, list[Raw]] = self.__dict__.setdefault("_known", {})
        if not known.get(group_version):
            root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
            try:
                known[group_version] = self.requests.send("GET", root)["resources"]
            except LabError:
                return
        yield from known[group_version]

    def _exists(self, path: str) -> bool:
        try:
            self.requests.send("GET", path)
        except LabError as error:
            if "HTTP Error 404" in str(error):
                return False
            raise
        return True

    def _send(
        self, command: Command, method: str, path: str, body: object = None, **how: Any
    ) -> Any:
        try:
            return self.requests.send(method, path, body, headers=command.headers, **how)
        except LabError as error:
            status = _status(str(error))
            if status is None:
                raise
            raise LabError(
                f"Error from server ({status.get('reason', '')}): {status['message']}", exit_code=1
            ) from error


def _read(group_version: str, found: Raw) -> Kind:
    singular = found["singularName"] or found["kind"].lower()
    return Kind(group_version, found["name"], singular, found["namespaced"])


def _simple(command: Command, kind: str, name: str) -> Raw:
    """The manifest of ``create KIND NAME`` with flags."""
    if kind == "namespace":
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if kind == "clusterrolebinding":
        group = "rbac.authorization.k8s.io"
        users = command.flags.get("--user", ())
        return {
            **_BINDING,
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": group,
                "kind": "ClusterRole",
                "name": command.flag("--clusterrole"),
            },
            "subjects": [{"apiGroup": group, "kind": "User", "name": user} for user in users],
        }
    raise UnknownCommandError(kind)


def _output(command: Command, kind: Kind, obj: Raw, done: str = "") -> str:
    """What kubectl prints of an object; ``done`` follows its name where no form is given."""
    if command.form == "json":
        return json.dumps(obj)
    if fields := _FIELD.fullmatch(command.form):
        value: Any = obj
        for name in fields[1].split(".")[1:]:
            value = value.get(name) if isinstance(value, dict) else None
        return (
            value
            if isinstance(value, str)
            else ""
            if value is None
            else json.dumps(value, separators=(",", ":"))
        )
    group = kind.group_version.rpartition("/")[0]
    name = f"{kind.singular}{f'.{group}' if group else ''}/{obj['metadata']['name']}"
    return f"{name}{'' if command.form == 'name' else done}\n"


def _status(message: str) -> Raw | None:
    """The Status object at the end of an error's message."""
    start = message.find('{"kind":"Status"')
    return None if start < 0 else json.loads(message[start:])
