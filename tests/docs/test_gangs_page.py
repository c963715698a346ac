"""What the page about gangs and priorities shows is what the programs read."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from kubeshare.api.configuration import Configuration, parse
from kubeshare.api.types.reasons import Reason
from kubeshare.core import gang_preemption
from kubeshare.core.gang import ORDERS, Gang, Near, near_search
from kubeshare.core.units import MICROS
from kubeshare.dialects import priority_and_gang
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.dialects.sharepod import demand_of
from kubeshare.scheduler.preemption.nominations import NOMINATION_SECONDS
from kubeshare.scheduler.preemption.preemption import RETRY_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "gangs-and-priorities.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_sharepod_of_the_page_is_one_of_a_gang_of_four() -> None:
    sharepod = yaml.safe_load(BLOCKS[0])
    demand = demand_of(sharepod)
    assert demand is not None
    assert demand.request_micros == MICROS // 2
    assert standing_of(sharepod).gang == Gang(name="train", min_available=4)


def test_the_allowance_of_the_page_is_a_configuration_and_is_said_as_there() -> None:
    allowed = parse(BLOCKS[1]).max_priority
    assert allowed.of("anybody") == 0
    labels = {priority_and_gang.PRIORITY: "100"}
    limited = standing_of({"metadata": {"labels": labels}}, allowed.of("research"))
    note = limited.priority_note.partition(" (")[0]
    assert f"`{note}`" in PAGE


@pytest.mark.parametrize(
    "label",
    [
        priority_and_gang.PRIORITY,
        priority_and_gang.GROUP_NAME,
        priority_and_gang.MIN_AVAILABLE,
        priority_and_gang.GROUP_HEADCOUNT,
        priority_and_gang.GROUP_THRESHOLD,
    ],
)
def test_each_label_is_in_the_table(label: str) -> None:
    prefix, _, name = label.partition("/")
    assert f"| label `{prefix}/…` |" in PAGE
    assert any(f"`{name}`" in line for line in PAGE.splitlines() if line.startswith("| `"))


def test_each_nearness_is_in_its_table() -> None:
    assert f"`{priority_and_gang.GANG_NEAR}`" in PAGE
    for near in get_args(Near):
        assert f"\n| `{near}` | " in PAGE
    assert f"by default `{Configuration().gang_domain_label}`" in PAGE


def test_the_numbers_of_the_page_are_those_of_the_programs() -> None:
    default = Configuration()
    assert f"`gangTimeoutSeconds` ({default.gang_timeout_seconds:g}," in PAGE
    assert f"`gangMembers` ({default.gang_members}," in PAGE
    assert not default.preemption
    assert (ORDERS, "64 orders" in PAGE) == (64, True)
    assert (near_search.SCOPES, "16 places" in PAGE) == (16, True)
    assert f"more than {near_search.MOST_SCOPES} places" in PAGE
    assert (gang_preemption.SCOPES, "up to eight places" in PAGE) == (8, True)
    assert (NOMINATION_SECONDS, "for three minutes at most" in PAGE) == (180, True)
    assert (RETRY_SECONDS, "again after ten seconds" in PAGE) == (10, True)


def test_the_reasons_of_gangs_are_explained() -> None:
    for reason in (Reason.GANG_INCOMPLETE, Reason.GANG_NO_ROOM, Reason.GANG_TIMED_OUT):
        assert f"`{reason}`" in PAGE
