"""Compare a fast policy with a slow reference on millions of random states.

A *state* is a ledger and a demand. An episode is a list of steps drawn from a seed: a small
cluster is built, demands are placed and released, GPUs fail, nodes are removed. At each demand
both policies decide, and the decisions must be equal. Steps that no longer make sense are
skipped, so any subsequence of an episode is an episode too: a failing one is shortened by
removing steps that the failure does not need, and printed as a test.

The run counts what it covered: states that differ in more than names, and how often each kind of
decision occurred. Device trees are made narrow, so that few devices already make deep ones.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import msgspec

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index import device_tree, node_ranking, sorted_blocks
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

Step: TypeAlias = tuple[str, Any]
"""A kind of step and its argument: see ``_STEPS``."""

BY_NAMESPACE: Final[Step] = ("scope", "namespace")
"""The step of an episode whose labels are each namespace's own."""

_BITS: Final = 27
_NARROW: Final = 3


class Trial(msgspec.Struct, frozen=True):
    """A policy with its reference.

    Attributes:
        name: the name of the policy.
        fast: the policy.
        slow: the reference; it returns what `short` makes of the fast one's decision.
        short: the compared summary of a decision.
        episode: draws the steps of a random episode.
        branch: the kind of decision in a state, for counting.
    """

    name: str
    fast: Policy
    slow: Callable[[Ledger, Demand], object]
    short: Callable[[Decision], object]
    episode: Callable[[random.Random], list[Step]]
    branch: Callable[[Ledger, Demand, Decision], str]


class Seen:
    """What a run has covered.

    Attributes:
        states: the number of states.
        branches: kind of decision → how often it occurred.
    """

    def __init__(self) -> None:
        self.states = 0
        self.branches: Counter[str] = Counter()
        self._marks = bytearray(1 << (_BITS - 3))

    def add(self, state: int, branch: str) -> None:
        """Count a state by its hash."""
        self.states += 1
        self.branches[branch] += 1
        bit = state & ((1 << _BITS) - 1)
        self._marks[bit >> 3] |= 1 << (bit & 7)

    @property
    def distinct(self) -> int:
        """A lower bound of the number of different states, since two may share a bit."""
        return int.from_bytes(self._marks, "little").bit_count()


class Failure(AssertionError):  # noqa: N818 - it reports a failed test
    """The two policies differ; the message is the shortest episode found, as a test."""


class Fingerprint:
    """An index that hashes a ledger without the names of demands."""

    def __init__(self, ledger: Ledger) -> None:
        self.value = 0
        for node in ledger.nodes.values():
            self.value ^= hash(node)
        for device in ledger.devices.values():
            self.value ^= _hash(device)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """See :class:`kubeshare.core.ledger.tables.Index`."""
        self.value ^= (_hash(before) if before else 0) ^ (_hash(after) if after else 0)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """See :class:`kubeshare.core.ledger.tables.Index`."""
        self.value ^= (hash(before) if before else 0) ^ (hash(after) if after else 0)


def run(trial: Trial, states: int, seed: int) -> Iterator[Seen]:
    """Try a policy on random states.

    Args:
        trial: the policy.
        states: the least number of states.
        seed: the seed of all randomness.

    Yields:
        what was covered so far, after each episode.

    Raises:
        Failure: the two policies differ.
    """
    source = random.Random(seed)
    seen = Seen()
    with narrow_trees():
        while seen.states < states:
            steps = trial.episode(source)
            if not play(trial, steps, seen):
                raise Failure(report(trial, shorten(trial, steps)))
            yield seen


def play(trial: Trial, steps: list[Step], seen: Seen | None = None) -> bool:
    """Whether both policies answer alike throughout an episode."""
    ledger = Ledger(label_scope="namespace" if BY_NAMESPACE in steps else "cluster")
    fingerprint = ledger.index(Fingerprint) if seen else None
    for kind, what in steps:
        if kind != "ask":
            _STEPS[kind](ledger, what)
            continue
        decision = trial.fast(ledger, what)
        if trial.short(decision) != trial.slow(ledger, what):
            return False
        if seen and fingerprint:
            state = hash((fingerprint.value, *msgspec.structs.astuple(what)[2:]))
            seen.add(state, trial.branch(ledger, what, decision))
        if decision.outcome == "bound" and not ledger.held_by(what.uid):
            commit(ledger, what, decision)
    return True


def shorten(trial: Trial, steps: list[Step]) -> list[Step]:
    """A part of a failing episode that still fails, and of which nothing can be left out."""
    size = len(steps) // 2
    while size:
        before = len(steps)
        at = 0
        while at < len(steps):
            rest = steps[:at] + steps[at + size :]
            if play(trial, rest):
                at += size
            else:
                steps = rest
        # What could be left out may have been what the rest before it was needed for.
        if size > 1 or len(steps) == before:
            size //= 2
    return steps


def report(trial: Trial, steps: list[Step]) -> str:
    """A failing episode as a test; ``TRIALS`` are those of ``robustness.prove.__main__``."""
    lines = [f"policy {trial.name} differs from the slow one:", "", "steps = ["]
    lines += [f"    ({kind!r}, {what!r})," for kind, what in steps]
    lines += ["]", f"assert play({{each.name: each for each in TRIALS}}[{trial.name!r}], steps)"]
    return "\n".join(lines)


@contextmanager
def narrow_trees() -> Iterator[None]:
    """Trees of devices are as deep with ten devices as they are otherwise with ten thousand."""
    wide, many, block = device_tree.WIDTH, device_tree.BOUNDS, sorted_blocks.BLOCK
    device_tree.WIDTH, device_tree.BOUNDS = _NARROW, _NARROW  # type: ignore[misc]  # constants elsewhere
    sorted_blocks.BLOCK = _NARROW  # type: ignore[misc]
    try:
        yield
    finally:
        device_tree.WIDTH, device_tree.BOUNDS = wide, many  # type: ignore[misc]
        sorted_blocks.BLOCK = block  # type: ignore[misc]


def among_many(trial: Trial) -> Trial:
    """The trial, with a policy that searches and follows its clusters as those of many nodes."""

    def fast(ledger: Ledger, demand: Demand) -> Decision:
        few, at_once = node_ranking.FEW_NODES, node_ranking.AT_ONCE
        node_ranking.FEW_NODES, node_ranking.AT_ONCE = 0, 0  # type: ignore[misc]  # constants elsewhere
        try:
            return trial.fast(ledger, demand)
        finally:
            node_ranking.FEW_NODES, node_ranking.AT_ONCE = few, at_once  # type: ignore[misc]

    return msgspec.structs.replace(trial, name=f"{trial.name}_among_many", fast=fast)


def _hash(device: Device) -> int:
    holders = sorted(msgspec.structs.astuple(holder)[2:] for holder in device.holders)
    return hash(
        (
            device.id,
            device.node,
            device.model,
            device.memory_bytes,
            device.healthy,
            device.fenced,
            *holders,
        )
    )


def _set_node(ledger: Ledger, node: Node) -> None:
    ledger.set_node(node)


def _forget_node(ledger: Ledger, name: str) -> None:
    if name in ledger.nodes:
        ledger.remove_node(name)


def _set_free(ledger: Ledger, what: tuple[str, tuple[FreeGpu, ...]]) -> None:
    if what[0] in ledger.nodes:
        ledger.set_free(*what)


def _add_device(ledger: Ledger, device: Device) -> None:
    if device.id not in ledger.devices:
        ledger.add_device(device)


def _mark(ledger: Ledger, what: tuple[str, bool, bool]) -> None:
    if what[0] in ledger.devices:
        ledger.mark(what[0], healthy=what[1], fenced=what[2])


def _remove_device(ledger: Ledger, device_id: str) -> None:
    if device_id in ledger.devices and ledger.devices[device_id].idle:
        ledger.remove_device(device_id)


def _release(ledger: Ledger, uid: str) -> None:
    if ledger.held_by(uid):
        ledger.release(uid)


def _place(ledger: Ledger, what: tuple[Demand, str]) -> None:
    with suppress(LedgerError):
        ledger.place(*what)


def _what_if(ledger: Ledger, steps: list[Step]) -> None:
    with ledger.what_if():
        for kind, what in steps:
            _STEPS[kind](ledger, what)


def _set_scope(ledger: Ledger, scope: str) -> None:
    """Check that the ledger was created with this scope."""
    assert ledger.label_scope == scope


_STEPS: Final[dict[str, Callable[[Ledger, Any], None]]] = {
    "scope": _set_scope,
    "node": _set_node,
    "forget": _forget_node,
    "free": _set_free,
    "device": _add_device,
    "mark": _mark,
    "remove": _remove_device,
    "place": _place,
    "release": _release,
    "what if": _what_if,
}
