"""Who owns the GPUs of a node, by its GPUNode."""

from typing import Final

from e2e.stage import Raw, Stage, eventually

SECONDS: Final = 300.0
"""For a takeover, which waits a minute for the device plugin not to come back."""


def owned_condition(stage: Stage, node: str) -> Raw:
    """The condition Owned of a node; empty while it has none."""
    conditions = stage.gpunode(node).get("status", {}).get("conditions", [])
    return next(iter(conditions), {})


def until_owned(stage: Stage, node: str, reason: str = "Owned") -> Raw:
    """Wait until the condition Owned of a node has a reason, and return it."""
    return eventually(
        lambda: found if (found := owned_condition(stage, node)).get("reason") == reason else None,
        f"{node} to be {reason}",
        seconds=SECONDS,
        explain=lambda: str(owned_condition(stage, node)),
    )
