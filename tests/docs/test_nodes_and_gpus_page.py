"""The page about nodes and GPUs names what there is."""

import re
from pathlib import Path

import yaml

from kubeshare.api.configuration import parse
from kubeshare.api.predicates.exclusions import MAX_RESCHEDULES
from kubeshare.api.types.reasons import Reason
from kubeshare.device_manager.owned import controller
from kubeshare.device_manager.placeholder import recovery
from kubeshare.device_manager.sharepod.rescheduling import unschedulable

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nodes-and-gpus.md").read_text()
CODE = "".join(path.read_text() for path in (ROOT / "src" / "kubeshare").rglob("*.py"))


def test_every_word_that_one_sees_is_said_by_a_program() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    seen = {word for row in rows for word in re.findall(r"`([A-Z]\w+)`", row.split(" | ")[2])}
    kinds = {"Allocated", "Scheduled", "Degraded", "Shareable", "Owned"}
    known = set(re.findall(r'"(\w+)"', CODE)) | set(Reason)
    assert len(seen) > 10
    assert seen - kinds <= known


def test_the_settings_can_be_written_so_and_are_the_defaults() -> None:
    section = PAGE.partition("## Configuration\n")[2]
    written = section.partition("```yaml\n")[2].partition("```")[0]
    assert parse(written) == parse("")
    assert set(yaml.safe_load(written)) == {"gpuFailure", "setAsideSeconds"}


def test_the_selectors_can_be_written_so() -> None:
    written = PAGE.partition("```yaml\n")[2].partition("```")[0]
    assert len(parse(written).owned.selectors) == 3


def test_the_numbers_are_those_of_the_programs() -> None:
    assert f"waits {unschedulable.FIRST_WAIT_SECONDS:.0f} s" in PAGE
    assert f"decides again without that node for {parse('').set_aside_seconds:.0f} s" in PAGE
    assert f"has offered none for {controller.SETTLED_SECONDS:.0f} s" in PAGE
    assert (MAX_RESCHEDULES, recovery.MAX_ATTEMPTS) == (10, 5)
