"""Garbage collection of a program whose state is large and stays."""

import gc


def freeze_live_objects() -> None:
    """Have the collector look no more at what is there now; what is garbage already goes first."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
