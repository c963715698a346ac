"""Every mutant of a module: its text with one small thing changed.

What is changed comes from mutmut (:data:`mutmut.mutation.mutators.mutation_operators`):
comparisons, arithmetic, numbers, texts, arguments, assignments, conditions. mutmut's
own runner passes over whatever is decorated or stands outside a function; here
properties, cached functions, constants and defaults are changed as well. What has no
meaning when the program runs is not: annotations, type aliases, imports. Nor is what is logged, or
the logger, as in PIT (``avoidCallsTo``): its wording is for people and may change at any time. Nor
is what shows only where the program is wrong already, ``strict=`` of ``zip``, or only in a process
of its own, below ``if __name__``; nor ``None`` for ``False`` where it is given or assigned; nor the
options of structs that forbid something (``frozen``, ``kw_only``).
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst
import msgspec
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import mutation_operators

_UNMUTATED = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)
_UNMUTATED_CALLS = {"len", "isinstance", "log"}
"""Functions, and objects whose methods are called."""
_UNMUTATED_NAMES = {"__all__", "__slots__", "log"}
_UNMUTATED_KEYWORDS = {"frozen", "gc", "kw_only"}
"""Of structs: what they forbid shows only where the program is wrong, and ``gc`` costs time."""
_SIMPLE_DEFAULTS = (cst.Name, cst.BaseNumber, cst.BaseString)


class Mutant(msgspec.Struct, frozen=True):
    """A module with one small thing changed.

    Attributes:
        module: its path below the mutated folder.
        function: the qualified name of the function or method; "" is the module's own body,
            or a class's, which runs when the module is imported.
        change: ``before → after``, the lines that differ; numbered where a function has
            the same change more than once.
        span: the first and the last line of the statement; who runs none of it cannot tell.
        text: the whole module, changed.
    """

    module: str
    function: str
    change: str
    span: tuple[int, int]
    text: str

    @property
    def name(self) -> str:
        """Unique among all mutants."""
        return f"{self.module} {self.function}: {self.change}"


def mutants_of(folder: Path, module: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines."""
    text = (folder / module).read_text()
    wrapper = MetadataWrapper(cst.parse_module(text))
    visitor = _Visitor(wrapper.module, text)
    wrapper.visit(visitor)
    spans = _spans(text)
    same: Counter[tuple[str, str]] = Counter()
    for line, function, mutated in visitor.found:
        change = _change(text, mutated)
        same[function, change] += 1
        if same[function, change] > 1:
            change += f" ({same[function, change]})"
        yield Mutant(module, function, change, spans.get(line, (line, line)), mutated)


class _Visitor(cst.CSTVisitor):
    """Collects line, function and mutated text."""

    METADATA_DEPENDENCIES = (ParentNodeProvider, PositionProvider)

    def __init__(self, module: cst.Module, text: str) -> None:
        super().__init__()
        self.found: list[tuple[int, str, str]] = []
        self._module = module
        self._text = text
        self._offsets = [0]
        for line in text.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._inside: list[cst.FunctionDef | cst.ClassDef] = []
        self._default = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_unmutated(node) or (isinstance(node, cst.Arg) and self._is_strict_of_zip(node)):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._inside.append(node)
        self._default += isinstance(node, cst.Parameters)
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for mutated in operator(node):
                    if _means_something(node, mutated):
                        self._add(node, mutated)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._inside and self._inside[-1] is original_node:
            self._inside.pop()
        self._default -= isinstance(original_node, cst.Parameters)

    def _is_strict_of_zip(self, argument: cst.Arg) -> bool:
        call = self.get_metadata(ParentNodeProvider, argument)
        is_strict = argument.keyword is not None and argument.keyword.value == "strict"
        return is_strict and bool(_strict_of_zip(call))

    def _add(self, node: cst.CSTNode, mutated: cst.CSTNode) -> None:
        place = self.get_metadata(PositionProvider, node)
        begin = self._offsets[place.start.line - 1] + place.start.column
        end = self._offsets[place.end.line - 1] + place.end.column
        if self._text[begin:end] == self._module.code_for_node(node):
            code = self._module.code_for_node(mutated)
            text = self._text[:begin] + code + self._text[end:]
        else:
            changed = self._module.deep_replace(node, mutated)
            assert isinstance(changed, cst.Module)
            text = changed.code
        self.found.append((place.start.line, self._function(), text))

    def _function(self) -> str:
        """The outermost function; defaults belong to what is around it."""
        names: list[str] = []
        for number, scope in enumerate(self._inside, start=1):
            names.append(scope.name.value)
            if isinstance(scope, cst.FunctionDef):
                is_default = self._default and number == len(self._inside)
                return "" if is_default else ".".join(names)
        return ""


def _is_unmutated(node: cst.CSTNode) -> bool:
    match node:
        case cst.Call(func=cst.Name(value=name) | cst.Attribute(value=cst.Name(value=name))):
            return name in _UNMUTATED_CALLS
        case (
            cst.If(test=cst.Name(value="TYPE_CHECKING"))
            | cst.If(test=cst.Comparison(left=cst.Name(value="__name__")))
            | cst.AnnAssign(annotation=cst.Annotation(annotation=cst.Name(value="TypeAlias")))
            | cst.Assign(value=cst.Call(func=cst.Name(value="TypeVar")))
        ):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return name in _UNMUTATED_NAMES
        case cst.Arg(keyword=cst.Name(value=name)):
            return name in _UNMUTATED_KEYWORDS
        case cst.Param(default=cst.BaseExpression() as default):
            return not isinstance(default, _SIMPLE_DEFAULTS)
        case _:
            return isinstance(node, _UNMUTATED)


def _means_something(node: cst.CSTNode, mutated: cst.CSTNode) -> bool:
    """Whether a change of a node could show in a program that is right."""
    if _strict_of_zip(mutated) != _strict_of_zip(node):
        return False
    # Both are false; that it becomes true is a mutant of its own.
    match node, mutated:
        case cst.Call(args=before), cst.Call(args=after):
            return not any(map(_is_none_for_false, before, after))
        case cst.Assign(), cst.Assign():
            return not _is_none_for_false(node, mutated)
        case _:
            return True


def _is_none_for_false(before: cst.Arg | cst.Assign, after: cst.Arg | cst.Assign) -> bool:
    match before.value, after.value:
        case cst.Name(value="False"), cst.Name(value="None"):
            return True
        case _:
            return False


def _strict_of_zip(node: object) -> list[str]:
    """The argument ``strict`` of a call of ``zip``; empty without one."""
    match node:
        case cst.Call(func=cst.Name(value="zip"), args=arguments):
            named = [each for each in arguments if each.keyword and each.keyword.value == "strict"]
            return [cst.Module([]).code_for_node(each.value) for each in named]
        case _:
            return []


def _change(before: str, after: str) -> str:
    """The lines that differ, without their indentation."""
    was, now = before.splitlines(), after.splitlines()
    while was and now and was[0] == now[0]:
        del was[0], now[0]
    while was and now and was[-1] == now[-1]:
        del was[-1], now[-1]
    return f"{_short(was)} → {_short(now)}"


def _short(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines) or "nothing"


def _spans(text: str) -> dict[int, tuple[int, int]]:
    """Line → the lines of the innermost statement it belongs to; of a compound one its head."""
    spans: dict[int, tuple[int, int]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            span = node.lineno, max(node.lineno, end)
            spans.update(dict.fromkeys(range(span[0], span[1] + 1), span))
    return spans
