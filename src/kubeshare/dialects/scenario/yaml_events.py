"""YAML as a stream of parser events, composed into nodes on demand.

Errors of the parser become :class:`FileError` with source and line.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, Final, NoReturn

import yaml

from kubeshare.dialects.scenario.strict_yaml import TAG, Field, FileError

MAX_BYTES: Final = 64 * 2**20
"""The most bytes of a file."""

MAX_DEPTH: Final = 64
"""The deepest nesting of lists and mappings."""

# How many chunks a parser may have read ahead of the position of an error.
_CHUNKS = 4

# libyaml parses twenty times as fast; PyYAML may be built without it.
QUICK: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser to try first."""

THOROUGH: Final[Any] = yaml.SafeLoader
"""The parser for files that libyaml rejects."""

_RESOLVER: Any = yaml.resolver.Resolver()


class QuickParserError(FileError):
    """libyaml rejects valid YAML: a block of text whose first line begins with a tab.

    The matrix of ``nvidia-smi topo -m`` begins so.
    """


class Parser:
    """Reads a document sequentially."""

    def __init__(self, stream: BinaryIO, source: str, loader: Any) -> None:
        self._source = source
        self._reader = _Reader(stream, source, keep=not stream.seekable())
        self._strict = loader is not THOROUGH
        self._loader = self._safely(lambda: loader(self._reader))
        self._ahead: Any = None

    def open(self, listed: str) -> None:
        """Read up to the first key.

        Args:
            listed: the key of the list, for the error if the top level is no mapping.
        """
        self._next(yaml.StreamStartEvent)
        if isinstance(self._peek(), yaml.StreamEndEvent):
            self.fail(1, "is empty")
        self._next(yaml.DocumentStartEvent)
        if not isinstance(self._peek(), yaml.MappingStartEvent):
            node = self.value()
            if node.tag == f"{TAG}null":
                self.fail(1, "is empty")
            Field(self._source, node).mapping((listed,))
        self._next()

    def top_keys(self) -> Iterator[yaml.Node]:
        """The following keys; the value of each has to be consumed before the next."""
        while not isinstance(self._peek(), yaml.MappingEndEvent):
            yield self.value()
        self._next()
        self._next(yaml.DocumentEndEvent)
        after = self._peek()
        if not isinstance(after, yaml.StreamEndEvent):
            self.fail(after.start_mark.line + 1, "is not YAML: a second document begins")

    def value(self) -> yaml.Node:
        """The next value, composed."""
        return self._compose(self._next(), 0)

    def at_nothing(self) -> bool:
        """Consume the next value if it is ``null``."""
        event = self._peek()
        if isinstance(event, yaml.ScalarEvent) and _tag(event) == f"{TAG}null":
            self._next()
            return True
        return False

    def items(self, path: str) -> Iterator[Field]:
        """The items of the list that is the next value."""
        if not isinstance(self._peek(), yaml.SequenceStartEvent):
            Field(self._source, self.value(), path).items()
        self._next()
        index = 0
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            yield Field(self._source, self._compose(event, 1), f"{path}[{index}]")
            index += 1

    def skip(self) -> None:
        """Skip the next value."""
        depth = 0
        while True:
            event = self._next()
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return

    def rest(self) -> bytes:
        """The whole text of a stream that can be read only once."""
        return self._reader.read_all()

    def forget(self) -> None:
        """Stop keeping the whole text."""
        self._reader.keep = False

    def fail(self, line: int, message: str) -> NoReturn:
        """Raise an error about a line.

        Raises:
            FileError: always.
        """
        raise FileError(f"{self._source}:{line}: {message}")

    def _peek(self) -> Any:
        if self._ahead is None:
            self._ahead = self._safely(self._loader.get_event)
        return self._ahead

    def _next(self, expected: type | None = None) -> Any:
        event = self._ahead or self._safely(self._loader.get_event)
        self._ahead = None
        assert expected is None or isinstance(event, expected)
        return event

    def _compose(self, event: Any, depth: int) -> yaml.Node:
        """The node that starts with an event.

        Aliases are rejected: a file of a few lines could expand to more than fits in memory.
        """
        mark: Any = event.start_mark
        if depth > MAX_DEPTH:
            self.fail(mark.line + 1, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            self.fail(mark.line + 1, "is not YAML: aliases are not read")
        if isinstance(event, yaml.ScalarEvent):
            return yaml.ScalarNode(_tag(event), event.value, mark)
        if isinstance(event, yaml.SequenceStartEvent):
            values = []
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                values.append(self._compose(inner, depth + 1))
            return yaml.SequenceNode(event.tag or f"{TAG}seq", values, mark)
        pairs = []
        while not isinstance(inner := self._next(), yaml.MappingEndEvent):
            key = self._compose(inner, depth + 1)
            pairs.append((key, self._compose(self._next(), depth + 1)))
        return yaml.MappingNode(event.tag or f"{TAG}map", pairs, mark)

    def _safely(self, step: Callable[[], Any]) -> Any:
        """One step of the parser, with its errors as :class:`FileError`."""
        try:
            return step()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            message = f"is not YAML: {error.problem or error}"
            if self._strict and "tab" in message:
                raise QuickParserError(f"{self._source}:{line}: {message}") from error
            self.fail(line, message)
        except yaml.reader.ReaderError as error:
            wrong = "text in UTF-8" if "UTF-8" in error.reason else f"YAML: {error.reason}"
            self.fail(self._reader.line_of(error.position), f"is not {wrong}")


class _Reader:
    """The bounded input of a parser, read in chunks as they arrive.

    Attributes:
        keep: whether to keep all text rather than the last chunks.
    """

    def __init__(self, stream: BinaryIO, source: str, *, keep: bool) -> None:
        self.keep = keep
        self._read = getattr(stream, "read1", stream.read)
        self._source = source
        self._size = 0
        self._lines = 0
        # Each chunk with its offset and the number of lines that end before it.
        self._chunks: deque[tuple[int, int, bytes]] = deque()

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        chunk: bytes = self._read(size)
        self._chunks.append((self._size, self._lines, chunk))
        while len(self._chunks) > _CHUNKS and not self.keep:
            self._chunks.popleft()
        self._size += len(chunk)
        self._lines += chunk.count(b"\n")
        if self._size > MAX_BYTES:
            raise FileError(f"{self._source}: is larger than {MAX_BYTES // 2**20} MiB")
        return chunk

    def line_of(self, position: int) -> int:
        """The line of a recently read byte."""
        for offset, lines, chunk in reversed(self._chunks):
            if position >= offset:
                return lines + chunk.count(b"\n", 0, position - offset) + 1
        return 1

    def read_all(self) -> bytes:
        """All text, read so far and remaining."""
        while self.read(2**16):
            pass
        return b"".join(chunk for _, _, chunk in self._chunks)


def _tag(event: Any) -> str:
    """The tag of a scalar; that of a plain scalar follows from its text."""
    if event.tag not in (None, "!"):
        return str(event.tag)
    return _plain_tag(event.value) if event.implicit[0] else f"{TAG}str"


@lru_cache(maxsize=1024)
def _plain_tag(text: str) -> str:
    return str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))
