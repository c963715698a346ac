"""Installs a package with a placement policy for the duration of a test."""

import sys
from pathlib import Path
from typing import Final

import pytest

MODULE: Final = "house_policy"
NAME: Final = "house"
WHO: Final = f"policy {NAME} ({MODULE}:decide)"
"""How errors name the policy."""

HEAD: Final = """\
from kubeshare.core.decision import Decision
from kubeshare.core.policies.locality.policy import decide as locality


def decide(ledger, demand):
"""

RAISING: Final = f"{HEAD}    raise ZeroDivisionError('oh')\n"
FULL: Final = f"""{HEAD}    first = min(ledger.devices.values(), key=lambda device: device.path)
    return Decision(outcome="bound", node=first.node, devices=(first.id,), reasons={{}})
"""
"""Chooses the first GPU, full or not."""


def install_policy(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install ``source`` as the policy ``house``, as pip would."""
    (folder / f"{MODULE}.py").write_text(source)
    metadata = folder / f"{MODULE}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    entry = f"{NAME} = {MODULE}:decide"
    (metadata / "entry_points.txt").write_text(f"[kubeshare.policies]\n{entry}\n")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.syspath_prepend(str(folder))
