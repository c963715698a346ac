"""Which versions of NVIDIA's driver shares need."""

from typing import Final

OLDEST_DRIVER: Final = 525
"""The oldest branch of NVIDIA's driver with which the device library is tested."""


def too_old(driver: str) -> str:
    """Why a driver cannot be used for new shares; empty if it can, or its branch is unknown.

    Args:
        driver: its version, or only the branch: ``535.104.05`` or ``535``.
    """
    branch = driver.partition(".")[0]
    if not branch.isdigit() or int(branch) >= OLDEST_DRIVER:
        return ""
    return f"its driver {driver} is too old: shares need {OLDEST_DRIVER} or later (CUDA 12.0)"
