"""Builds the environment in which a program sees fake GPUs."""

import os
from pathlib import Path

from kubeshare import native


def environment(
    profile: str | Path, state: str | Path | None = None, seed: str = ""
) -> dict[str, str]:
    """The variables to add to a program's environment.

    Args:
        profile: a profile's file, or a name like ``V100x2``.
        state: the state folder; without one, the profile's own or this user's.
        seed: UUIDs follow from model, index and this; without one, the profile's own.

    Returns:
        Names and values. ``LD_LIBRARY_PATH`` keeps what this process has in it.

    Raises:
        NativeMissingError: the fake GPU has not been built.
    """
    libraries = str(native.path(native.FAKE_DRIVER_FOLDER))
    searched = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "LD_LIBRARY_PATH": f"{libraries}:{searched}" if searched else libraries,
        **settings(profile, state, seed),
    }


def settings(
    profile: str | Path, state: str | Path | None = None, seed: str = ""
) -> dict[str, str]:
    """What the fake GPU itself reads of a program's environment; arguments as above."""
    path = Path(profile)
    variables = {"FAKEGPU_PROFILE": str(path.resolve()) if path.is_file() else str(profile)}
    if state is not None:
        variables["FAKEGPU_STATE"] = str(Path(state).absolute())
    if seed:
        variables["FAKEGPU_SEED"] = seed
    return variables
