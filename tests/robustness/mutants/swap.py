"""Change a running program into a mutant of itself, or start one that is a mutant."""

import functools
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from robustness.mutants.mutations import Mutant


class Functions:
    """The functions of a program's modules, however they are wrapped.

    Args:
        folder: of the modules that are mutated.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        for thing in _objects():
            if isinstance(thing, FunctionType):
                code = thing.__code__
                if code.co_filename.startswith(str(folder)):
                    self._found[code.co_filename, code.co_qualname].append(thing)

    def swap(self, mutant: Mutant) -> None:
        """Give the mutant's function its changed body; there is no way back."""
        path = str(self._folder / mutant.module)
        changed = dict(_codes(compile(mutant.text, path, "exec", dont_inherit=True)))
        for function in self._found[path, mutant.function]:
            function.__code__ = changed[mutant.function]


def clear_caches(folder: Path) -> None:
    """Forget what cached functions have answered so far."""
    for thing in _objects():
        if isinstance(thing, functools._lru_cache_wrapper):
            code = getattr(thing.__wrapped__, "__code__", None)
            if code and code.co_filename.startswith(str(folder)):
                thing.cache_clear()


def _objects() -> list[Any]:
    """All objects, also those that somebody froze: these are not listed otherwise."""
    gc.unfreeze()
    return gc.get_objects()


def forget_modules(*folders: Path) -> None:
    """What was imported from these folders is imported anew when it is asked for."""
    places = tuple(str(folder) for folder in folders)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(places):
            del sys.modules[name]


class Changed(MetaPathFinder):
    """Imports a mutant in its module's place.

    Args:
        folder: of the modules that are mutated.
        mutant: one of one of them.
    """

    def __init__(self, folder: Path, mutant: Mutant) -> None:
        self._path = str(folder / mutant.module)
        self._text = mutant.text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != self._path:
            return None
        spec.loader = _Loader(fullname, self._path, self._text)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The code of a module's functions and of its classes' methods, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)
