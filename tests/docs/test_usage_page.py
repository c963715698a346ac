"""What the page about usage says is what the programs do."""

import re
from pathlib import Path

import yaml

from kubeshare.api.configuration import Configuration, parse
from kubeshare.cli.usage import formats
from kubeshare.client.usage.accounts import parse_keys
from kubeshare.core.usage.report import KEYS, UNHEARD_NS
from kubeshare.node.usage.accounts import CHECKPOINT_SECONDS
from kubeshare.node.usage.publisher import PUBLISH_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "usage.md").read_text()


def test_the_commands_sum_by_known_keys() -> None:
    for keys in re.findall(r"--by (\S+)", PAGE):
        assert parse_keys(keys)
    assert all(f"`{key}`" in PAGE for key in KEYS)


def test_each_column_is_explained() -> None:
    table = {name for line in PAGE.splitlines() if line.startswith("| `") for name in _names(line)}
    assert table == set(formats.COLUMNS)


def _names(line: str) -> list[str]:
    return re.findall(r"`(\w+)`", line.split("|")[1])


def test_the_prices_are_a_configuration() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    usage = parse(block).usage
    assert usage.price_micros("Tesla V100-SXM2-16GB") == 2_480_000
    assert usage.price_micros("another") is None
    assert yaml.safe_load(block)["usage"]["currency"] == "EUR"


def test_the_numbers_are_those_of_the_programs() -> None:
    assert (CHECKPOINT_SECONDS, "one minute at most" in PAGE) == (60, True)
    assert (PUBLISH_SECONDS, "ten minutes at most" in PAGE) == (600, True)
    assert (UNHEARD_NS, "after 25 minutes" in PAGE) == (25 * 60 * 10**9, True)
    assert (Configuration().usage.objects, "so 50 000 take" in PAGE) == (50_000, True)
