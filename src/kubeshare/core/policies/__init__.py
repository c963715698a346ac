"""Placement policies, by name.

A policy is a pure function from a ledger and a demand to a decision. It changes
nothing: whoever asked records the decision (:func:`kubeshare.core.decision.commit`).

Besides the built-in ones there are those of any installed package that declares an
entry point in the group ``kubeshare.policies``; ``docs/policies.md`` shows how. A
built-in name cannot be taken over.
"""

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.ledger.ledger import Ledger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Policy: TypeAlias = Callable[[Ledger, Demand], Decision]

ENTRY_POINTS: Final = "kubeshare.policies"
"""The group of entry points by which a package brings a policy: ``name = "module:function"``."""

BUILT_IN: Final = MappingProxyType(
    {
        "locality": "kubeshare.core.policies.locality.policy",
        "binpack": "kubeshare.core.policies.binpack.policy",
        "topology": "kubeshare.core.policies.topology.policy",
    }
)
"""Name → the module whose ``decide`` it is; only the one that is asked for is imported."""


def policy(name: str) -> Policy:
    """The policy that is registered under `name`.

    Raises:
        UnknownPolicyError: none is, or the package that brings it is broken.
    """
    if name in BUILT_IN:
        decide: Policy = import_module(BUILT_IN[name]).decide
        return decide
    brought = _brought()
    if name not in brought:
        known = ", ".join(sorted({*BUILT_IN, *brought}))
        raise UnknownPolicyError(f"policy {name} is not registered; these are: {known}")
    return _load(brought[name])


def _brought() -> "dict[str, EntryPoint]":
    """What installed packages bring; of two of one name the one whose target sorts first."""
    # Looking through all installed packages takes a while, which built-in names do not pay.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.value, reverse=True)
    return {entry.name: entry for entry in found}


def _load(entry: "EntryPoint") -> Policy:
    try:
        loaded: Any = entry.load()
    except Exception as error:
        told = " ".join(str(error).split()) or type(error).__name__
        raise UnknownPolicyError(
            f"policy {entry.name} ({entry.value}) cannot be loaded: {told}"
        ) from error
    if not callable(loaded):
        raise UnknownPolicyError(f"policy {entry.name} ({entry.value}) is not a function")
    brought: Policy = loaded
    return brought
