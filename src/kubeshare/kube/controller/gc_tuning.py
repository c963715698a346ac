"""Tunes the garbage collector for programs with large, long-lived state."""

import gc


def freeze_live_objects() -> None:
    """Collect once, then exclude all live objects from later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
