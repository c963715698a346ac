"""The released image has what the lab's has, at the same places."""

from pathlib import Path

import pytest

from kubeshare.lab import images

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Containerfile").read_text().splitlines()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def test_its_environment_is_that_of_the_labs_image() -> None:
    of_the_base = {line for line in images._CONFIG["Env"] if line.startswith("PATH=")}
    assert set(instructions("ENV")) == set(images._CONFIG["Env"]) - of_the_base


def test_its_python_is_that_of_the_labs_image() -> None:
    (base,) = instructions("FROM")
    assert ":3.11-" in base
    assert base.endswith("-bookworm")


@pytest.mark.native
def test_all_that_it_copies_is_there() -> None:
    sources = [word for line in instructions("COPY") for word in line.split()[:-1]]
    assert len(sources) == 4
    assert [source for source in sources if not (ROOT / source).exists()] == []
