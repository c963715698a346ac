"""No answer of `kubeshare plan` depends on the order in which a file lists nodes and GPUs."""

import random
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import samples
from kubeshare.cli.plan.command import plan

SCENARIOS = sorted(Path(__file__).parent.glob("*/*.yaml"))
SHUFFLES = -(-samples.count(whole=1000, sample=300) // len(SCENARIOS))
GAIA = """
    C01 C02 C03 C04 C05 C06 C07 C08 C11 C13 C14 C15 C16 C17 C18 C20 C21 C22 C23 C24 C25 C27 C28 C32
    C33 C34 C35 C38 C39 C41 C44 C45 C46 C48 C49 C50 C52 S01 S15 S16 S17 S18 Q1 Q2 Q3 Q4 Q5 Q6 Q7
"""


def answers(scenario: str) -> str:
    result = CliRunner().invoke(plan, ["-", "-o", "json"], input=scenario, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shuffles_of_nodes_and_gpus_print_the_same(scenario: Path) -> None:
    text = scenario.read_text()
    expected = answers(text)
    source = random.Random(scenario.name)
    for _ in range(SHUFFLES):
        written = yaml.safe_load(text)
        source.shuffle(written["nodes"])
        for node in written["nodes"]:
            source.shuffle(node.get("vgpus", []))
            for vgpu in node.get("vgpus", []):
                source.shuffle(vgpu.get("holders", []))
        assert answers(yaml.safe_dump(written, sort_keys=False)) == expected


def test_all_public_cases_of_gaia_are_here() -> None:
    numbers = {path.name.partition("_")[0] for path in SCENARIOS}
    assert set(GAIA.split()) <= numbers
