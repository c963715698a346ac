"""Reads `names.list`, a `Row` for each ABI of each name, and `nvml.list`, names alone."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

LIST = Path(__file__).with_name("names.list")
NVML_LIST = Path(__file__).with_name("nvml.list")
KINDS = ("allocate", "free", "query", "launch", "copy", "capture", "other")
RULES = ("account", "gate", "track", "answer", "pass")
GENERATED = "generated"

SYMBOL = re.compile(r"(?P<base>cu\w+?)(?:_v\d+)?(?P<twin>_pt[ds][sz])?")
ROW = re.compile(r"(?P<symbol>\w+) +(?P<since>\d+|-) +(?P<rule>\w+)(?: +(?P<body>\w+|[\w/]+\.c))?")
STREAM = re.compile(r"CUstream (\w+)")
NAME = re.compile(r"(\w+)\s*(?:,|$)")


class ListError(Exception):
    """A line of the list is invalid; the text names the line and the reason."""


@dataclass(frozen=True)
class Row:
    """One exported function.

    Attributes:
        symbol: The exported name.
        since: The CUDA version that introduced this ABI, 1000 * major + 10 * minor; 0 in NVML.
        kind: The section, one of `KINDS`.
        rule: One of `RULES`.
        body: The C file with the hook, `GENERATED`, or empty without a hook.
        parameters: The hook's C parameters in parentheses; empty without a hook.
    """

    symbol: str
    since: int
    kind: str
    rule: str
    body: str = ""
    parameters: str = ""

    @property
    def is_nvml(self) -> bool:
        """Whether the function belongs to NVML and not to the driver."""
        return self.symbol.startswith("nvml")

    @property
    def base(self) -> str:
        """The name by which cuGetProcAddress knows the function."""
        match = SYMBOL.fullmatch(self.symbol)
        return match["base"] if match else self.symbol

    @property
    def is_twin(self) -> bool:
        """Whether stream 0 is the calling thread's own stream in this ABI."""
        return self.symbol.endswith(("_ptsz", "_ptds"))

    @property
    def arguments(self) -> str:
        """The names of the parameters in parentheses, for a call that passes them on."""
        inside = self.parameters[1:-1].strip()
        if inside == "void":
            return "()"
        return f"({', '.join(NAME.findall(inside))})"

    @property
    def target(self) -> str:
        """The stream of a launch, as a C expression of its parameters."""
        if stream := STREAM.search(self.parameters):
            name = stream[1]
        else:
            name = "KS_TARGET(configuration)" if "configuration" in self.parameters else "NULL"
        return f"KS_STREAM_{'PER_THREAD' if self.is_twin else 'LEGACY'}({name})"

    @property
    def order(self) -> tuple[str, bool, int]:
        """The key by which rows of a section are sorted."""
        return self.base, self.is_twin, self.since


def read(path: Path = LIST) -> list[Row]:
    """Returns all rows in the order of the list.

    Raises:
        ListError: A row does not follow the rules in the head of the list.
    """
    rows: list[Row] = []
    kind = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            if line.startswith("["):
                kind = _kind(line)
            elif line.startswith(" ") and rows:
                rows[-1] = _continued(rows[-1], line)
            elif line and not line.startswith("#"):
                rows.append(_row(line, kind))
        except ListError as error:
            raise ListError(f"{path.name}, line {number}: {error}") from None
    return _complete(path, rows)


def read_nvml(path: Path = NVML_LIST) -> list[str]:
    """Returns the names of NVML that the device library has no rule for."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _kind(line: str) -> str:
    kind = line.strip("[]")
    if kind not in KINDS:
        raise ListError(f"{line} is no section: there are {', '.join(KINDS)}")
    return kind


def _row(line: str, kind: str) -> Row:
    match = ROW.fullmatch(line)
    if match is None:
        raise ListError("a row is: symbol, since, rule, and the file of its body if it has one")
    if not kind:
        raise ListError("a row stands in a section")
    if match["rule"] not in RULES:
        raise ListError(f"{match['rule']} is no rule: there are {', '.join(RULES)}")
    since = 0 if match["since"] == "-" else int(match["since"])
    row = Row(match["symbol"], since, kind, match["rule"], match["body"] or "")
    if row.is_nvml == bool(since):
        raise ListError("a name of the driver has a version, one of NVML has none (-)")
    if row.rule == "pass" and row.body:
        raise ListError("what is passed has no body: choose another rule")
    if row.body == GENERATED and row.rule != "gate":
        raise ListError("only the body of a gated function can be generated")
    return row


def _continued(row: Row, line: str) -> Row:
    if not row.body:
        raise ListError(f"{row.symbol} has parameters and no body: name the file in its row")
    return replace(row, parameters=f"{row.parameters} {line.strip()}".strip())


def _complete(path: Path, rows: list[Row]) -> list[Row]:
    known: dict[str, Row] = {}
    for row in rows:
        if row.symbol in known:
            raise ListError(f"{path.name}: {row.symbol} stands there twice")
        known[row.symbol] = row
    complete = []
    for row in rows:
        twin = re.sub(r"_pt[ds][sz]$", "", row.symbol)
        parameters = row.parameters or (known[twin].parameters if twin in known else "")
        if row.body and not re.fullmatch(r"\(.*\)", parameters):
            raise ListError(f"{path.name}: {row.symbol} has a body and no parameters (…) below it")
        complete.append(replace(row, parameters=parameters if row.body else ""))
    return complete
