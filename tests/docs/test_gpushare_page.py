"""What the page about gpushare shows of `kubeshare plan` is what it prints."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubeshare.cli.plan.command import plan
from kubeshare.core.units import GI, MI
from kubeshare.dialects.gpushare import GPU_MEMORY

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "gpushare"
SHOWN = dict(
    re.findall(
        r"```console\n\$ kubeshare plan (examples/\S+)\n(.*?)```",
        (ROOT / "docs" / "gpushare.md").read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
)
"""Scenario -> what the page says that the command prints."""


def test_each_scenario_is_on_the_page() -> None:
    scenarios = (EXAMPLES / "plan").iterdir()
    assert SHOWN.keys() == {each.relative_to(ROOT).as_posix() for each in scenarios}


@pytest.mark.parametrize("scenario", SHOWN)
def test_plan_prints_what_the_page_shows(scenario: str) -> None:
    result = CliRunner().invoke(plan, [str(ROOT / scenario)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, SHOWN[scenario])


def test_the_scenario_of_the_user_guide_has_the_pods_of_its_manifest() -> None:
    manifest = yaml.safe_load((EXAMPLES / "user-guide.yaml").read_text(encoding="utf-8"))
    scenario = yaml.safe_load((EXAMPLES / "plan" / "user-guide.yaml").read_text(encoding="utf-8"))
    spec = manifest["spec"]
    [container] = spec["template"]["spec"]["containers"]
    units = container["resources"]["limits"][GPU_MEMORY]
    pods = [f"{manifest['metadata']['name']}-{number}" for number in range(spec["replicas"])]
    asked = [(each["request"]["name"], each["request"]["gpuMem"]) for each in scenario["events"]]
    assert asked == [(name, units * GI // MI) for name in pods]
