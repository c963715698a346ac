"""Raises errors of a fake GPU while programs use it."""

from pathlib import Path

from kubeshare.fakegpu.program import ask

LOST = 79
"""The XID of a GPU that has fallen off the bus: it never comes back."""


def raise_error(state: str | Path, gpu: int, xid: int) -> None:
    """Raise an error on a GPU, as NVIDIA's driver reports it to its users.

    Args:
        state: the state folder of the machine.
        gpu: its index.
        xid: the error's number in NVIDIA's list: 48 breaks everybody's context, 63 remaps a
            row of memory, 64 could not, 79 (``LOST``) takes the GPU away.

    Raises:
        FakeGpuError: there is no such GPU, or that state does not exist.
    """
    ask("--raise", f"{gpu}:{xid}", settings={"FAKEGPU_STATE": str(state)})
