"""Strict access to YAML values, with errors that name line and field.

A reader takes known keys from a :class:`Field`: anything unknown, missing, duplicate or of the
wrong type is an error. Numbers are returned as text, so that ``0.3`` is three tenths and not the
nearest binary fraction. :mod:`.yaml_events` and :mod:`.yaml_stream` produce the fields.
"""

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NoReturn

import yaml

TAG: Final = "tag:yaml.org,2002:"
"""The prefix of the tags of YAML's own types."""

_MAX_COMPARED = 10_000
_MAX_LISTED = 20
_KINDS = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "map": "a mapping",
    "seq": "a list",
}


class FileError(ValueError):
    """A file is invalid; the message names place and reason."""


class Field:
    """A value in a file with its position.

    Attributes:
        path: its path: ``events[2].request.limit``; "" for the whole file.
        line: its first line, counted from 1.
    """

    def __init__(self, source: str, node: yaml.Node, path: str = "") -> None:
        self._source = source
        self._node = node
        self._tag = node.tag.removeprefix(TAG)
        self.path = path
        self.line = node.start_mark.line + 1

    def fail(self, reason: str) -> NoReturn:
        """Raise an error about this value.

        Raises:
            FileError: always.
        """
        raise FileError(f"{self._source}:{self.line}: {self.path or 'the file'}: {reason}")

    def absent(self) -> bool:
        """Whether it is ``null``."""
        return self._tag == "null"

    def mapping(
        self,
        known: Iterable[str],
        required: Iterable[str] = (),
        foreign: Mapping[str, str] | None = None,
    ) -> dict[str, "Field"]:
        """Its entries, without those that are ``null``.

        Args:
            known: the keys that it may have.
            required: the keys that it must have.
            foreign: key that is known elsewhere → where.

        Raises:
            FileError: it is no mapping, or has an unknown, duplicate or missing key.
        """
        if not isinstance(self._node, yaml.MappingNode):
            self._fail_type("a mapping")
        known = list(known)
        entries: dict[str, Field] = {}
        for key_node, value_node in self._node.value:
            key = self._key(key_node)
            entry = Field(self._source, value_node, f"{self.path}.{key}" if self.path else key)
            entry.line = key_node.start_mark.line + 1
            if foreign and key in foreign:
                entry.fail(f"is a field of {foreign[key]}")
            if key not in known:
                entry.fail(f"unknown key{suggestion(key, known)}")
            if key in entries:
                entry.fail("is given twice")
            entries[key] = entry
        present = {key: entry for key, entry in entries.items() if not entry.absent()}
        for key in required:
            if key not in present:
                self.fail(f"{key} is missing")
        return present

    def items(self) -> list["Field"]:
        """Its entries, as a list.

        Raises:
            FileError: it is not a list.
        """
        if not isinstance(self._node, yaml.SequenceNode):
            self._fail_type("a list")
        return [
            Field(self._source, node, f"{self.path}[{index}]")
            for index, node in enumerate(self._node.value)
        ]

    def text(self) -> str:
        """Its text.

        Raises:
            FileError: it is no text; a number, for example, needs quotes.
        """
        if self._tag != "str" or not isinstance(self._node, yaml.ScalarNode):
            quotes = " (in quotes)" if isinstance(self._node, yaml.ScalarNode) else ""
            self._fail_type(f"text{quotes}")
        return str(self._node.value)

    def name(self) -> str:
        """Its text, which must not be empty."""
        text = self.text()
        if not text:
            self.fail("is empty")
        return text

    def id(self) -> str:
        """A name that may be a number: its text, or a whole number as text.

        Raises:
            FileError: it is something else, or empty.
        """
        return str(self.whole_number()) if self._tag == "int" else self.name()

    def number(self) -> str:
        """A number or quantity as text; :mod:`kubeshare.core.units` parses it.

        Raises:
            FileError: it is neither a number nor text.
        """
        if self._tag not in ("int", "float", "str"):
            self._fail_type("a number")
        return str(self._node.value)

    def whole_number(self) -> int:
        """A number without a fraction, in decimal digits.

        Raises:
            FileError: it is something else.
        """
        text = str(self._node.value)
        if self._tag != "int" or not text.lstrip("-").isdecimal() or len(text) > 18:
            self._fail_type("a whole number")
        return int(text)

    def boolean(self) -> bool:
        """True or false.

        Raises:
            FileError: it is something else.
        """
        if self._tag != "bool":
            self._fail_type("true or false")
        return str(self._node.value).lower() in ("true", "yes", "on")

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            Field(self._source, node, self.path).fail("has a key that is not text")
        return str(node.value)

    def _fail_type(self, expected: str) -> NoReturn:
        found = _KINDS.get(self._tag, f"a value of type {self._tag}")
        shown = f" {self._node.value!r}" if isinstance(self._node, yaml.ScalarNode) else ""
        self.fail(f"must be {expected}, not {found}{shown}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`` (did you mean …?)`` if a known word is close, else a list of some known words."""
    known = list(islice(known, _MAX_COMPARED))
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f" (did you mean {close[0]}?)"
    if not known:
        return ""
    more = ", …" if len(known) > _MAX_LISTED else ""
    return f" (known: {', '.join(known[:_MAX_LISTED])}{more})"
