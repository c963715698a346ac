"""Placement policies, by name.

A policy is a pure function from a ledger and a demand to a decision. It changes nothing: the
caller records the decision (:func:`kubeshare.core.decision.commit`).

To add a built-in policy, create a package here with three modules, ``policy`` (with ``decide`` and
``score``, from its :class:`~kubeshare.core.policies.rules.Rules`), ``index`` (what it derives from
the ledger) and ``reasons`` (why GPUs were passed over), and add it to
:data:`BUILT_IN`. To add one from another package, declare an entry point in the group
``kubeshare.policies``; ``docs/policies.md`` shows how. A built-in name takes precedence.
"""

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.guard import GuardedPolicy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Policy: TypeAlias = Callable[[Ledger, Demand], Decision]

DEFAULT: Final = "locality"
"""The policy of a scheduler that is not told another one."""

ENTRY_POINTS: Final = "kubeshare.policies"
"""The entry point group of policies in other packages: ``name = "module:function"``."""

BUILT_IN: Final = MappingProxyType(
    {
        "locality": "kubeshare.core.policies.locality.policy",
        "binpack": "kubeshare.core.policies.binpack.policy",
        "topology": "kubeshare.core.policies.topology.policy",
    }
)
"""Name → the module of its ``decide``; a module is imported when its policy is used."""


def policy(name: str) -> Policy:
    """The policy registered under a name; one from another package is guarded.

    Raises:
        UnknownPolicyError: no policy has the name, or its package is broken.
    """
    if name in BUILT_IN:
        decide: Policy = import_module(BUILT_IN[name]).decide
        return decide
    installed = _installed()
    if name not in installed:
        known = ", ".join(sorted({*BUILT_IN, *installed}))
        raise UnknownPolicyError(f"policy {name} is not registered; these are: {known}")
    return _load(installed[name])


def _installed() -> "dict[str, EntryPoint]":
    """The policies of installed packages; of two with one name, the target that sorts first."""
    # Searching all installed packages takes a while; built-in names skip it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.value, reverse=True)
    return {entry.name: entry for entry in found}


def _load(entry: "EntryPoint") -> Policy:
    try:
        loaded: Any = entry.load()
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise UnknownPolicyError(
            f"policy {entry.name} ({entry.value}) cannot be loaded: {message}"
        ) from error
    if not callable(loaded):
        raise UnknownPolicyError(f"policy {entry.name} ({entry.value}) is not a function")
    return GuardedPolicy(entry.name, entry.value, loaded)
