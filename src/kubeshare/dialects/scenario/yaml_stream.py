"""A YAML document whose one long list is read item by item.

As a graph of nodes, a file of a million events would take gigabytes, and the first result would
wait for the last line. So the items of the list are composed one by one, on demand.

A file is scanned to its end before the first item is returned, so all other entries are known and
YAML errors are reported first. A pipe cannot be read twice: if all required entries precede the
list, its items are returned as they arrive, and nothing may follow the list; otherwise the whole
input is read first.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO

import yaml

from kubeshare.dialects.scenario.strict_yaml import Field, suggestion
from kubeshare.dialects.scenario.yaml_events import QUICK, THOROUGH, Parser, QuickParserError


class Document:
    """A file whose top level is a mapping with one long list.

    Args:
        stream: the text, in UTF-8.
        source: its name, for messages.
        listed: the key of the long list.
        known: the keys that the file may have.
        required: the keys that it must have.

    Attributes:
        entries: the other entries, without those that are ``null``.

    Raises:
        FileError: the file is too large, empty, no text, not one YAML document or no such
            mapping; :meth:`items` raises it too.
    """

    def __init__(
        self,
        stream: BinaryIO,
        source: str,
        *,
        listed: str,
        known: tuple[str, ...],
        required: tuple[str, ...],
    ) -> None:
        self._source = source
        self._listed = listed
        self._known = known
        self._others = [key for key in required if key != listed]
        self._seekable = stream.seekable()
        self._start = stream.tell() if self._seekable else 0
        self._stream = stream
        self._loader = QUICK
        self._restart()
        try:
            self._scan()
        except QuickParserError:
            self._read_whole()
            self._loader = THOROUGH
            self._stream.seek(self._start)
            self._restart()
            self._scan()

    def items(self) -> Iterator[Field]:
        """The items of the long list, composed on demand; can be called once."""
        if self._seekable:
            self._stream.seek(self._start)
            self._restart()
            self._advance()
        yield from self._parser.items(self._listed)
        while self._advance():
            pass

    def _restart(self) -> None:
        self.entries: dict[str, Field] = {}
        self._seen: set[str] = set()
        self._parser = Parser(self._stream, self._source, self._loader)
        self._parser.open(self._listed)

    def _read_whole(self) -> None:
        """Buffer a pipe, so that it can be read again."""
        if not self._seekable:
            self._stream = io.BytesIO(self._parser.rest())
            self._seekable = True

    def _scan(self) -> None:
        """Read all entries but the list; from a pipe only those before it, if they suffice."""
        found = self._advance()
        if found and not self._seekable:
            if all(key in self.entries for key in self._others):
                self._parser.forget()
                return
            self._read_whole()
            self._restart()
            found = self._advance()
        if found:
            self._parser.skip()
            self._advance()
        for key in self._others:
            if key not in self.entries:
                self._parser.fail(1, f"the file: {key} is missing")
        if not found:
            self._parser.fail(1, f"the file: {self._listed} is missing")

    def _advance(self) -> bool:
        """Read entries up to the value of the list; False at the end of the file."""
        passed = self._listed in self._seen
        for key_node in self._parser.top_keys():
            if not isinstance(key_node, yaml.ScalarNode):
                Field(self._source, key_node).fail("has a key that is not text")
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key not in self._known:
                self._parser.fail(line, f"{key}: unknown key{suggestion(key, self._known)}")
            if key in self._seen:
                self._parser.fail(line, f"{key}: is given twice")
            self._seen.add(key)
            if key == self._listed:
                if not self._parser.at_nothing():
                    return True
                continue
            entry = Field(self._source, self._parser.value(), key)
            entry.line = line
            if entry.absent():
                continue
            if passed and not self._seekable:
                entry.fail(f"must come before {self._listed} where the file is piped in")
            self.entries[key] = entry
        return False
