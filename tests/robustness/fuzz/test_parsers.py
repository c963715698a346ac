"""Damaged files are read or refused with one line.

The corpus is the conformance files. Each is damaged at random (cut, doubled, spliced with
another, with words and numbers exchanged) and read; files that can still be read are
planned. The seed is the number of the round, so that failures are reproducible.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import samples
from kubeshare.cli.plan.command import answers
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology import read_matrix, read_notation
from kubeshare.core.units import (
    parse_count,
    parse_gpus,
    parse_memory,
    parse_share,
    parse_size,
)
from kubeshare.dialects import gpushare, pod, vcuda
from kubeshare.dialects.scenario.scenario import read_scenario
from kubeshare.dialects.scenario.strict_yaml import FileError
from kubeshare.dialects.sharepod import demand_of

FILES = samples.count(whole=100_000, sample=6_000)
VALUES_READ = samples.count(whole=100_000, sample=10_000)
MANIFESTS = samples.count(whole=100_000, sample=10_000)

CONFORMANCE = Path(__file__).parents[2] / "conformance"
FILED = sorted(CONFORMANCE.glob("*/*.yaml"))
CORPUS = [path.read_text().partition("# Expected:")[0] for path in FILED]
WORDS = [
    *("policy", "locality", "binpack", "topology", "nodes", "events", "quota", "request", "name"),
    *("release", "fail", "vgpus", "holders", "gpus", "free", "count", "cores", "memoryBlocks"),
    *("gpuMem", "gpuCount", "topoMatrix", "null", "true", "~", "<<", "*a", "&a", "!!binary", "!x"),
    *("0", "1", "-1", "0.5", "1e9", "1e-9", ".inf", ".nan", "0x10", "1_000", "1Gi", "9" * 30),
    *("[", "]", "{", "}", ":", ",", "- ", "|", ">", "'", '"', "#", "\t", "\n", "  ", "\0", "é"),
    *("\ud800", "\u2028", "---", "...", "?", "%YAML 1.2\n", "NV12", "GPU0", "SYS(PIX(0,1),2)", "X"),
]
VALUES = ["", " ", "1", "1.", ".5", "-0", "+1", "1e3", "1E-3", "1e999", "1Ki", "1ki", "1m", "0.5Gi"]


def damaged(text: str, source: random.Random) -> str:
    """A text after a few accidents."""
    for _ in range(source.randint(1, 5)):
        text = source.choice(ACCIDENTS)(text, source.randrange(len(text) + 1), source)
    return text


def cut(text: str, at: int, source: random.Random) -> str:
    return text[:at] + text[at + source.choice(SIZES) :]


def double(text: str, at: int, source: random.Random) -> str:
    return text[: at + source.choice(SIZES)] + text[at:]


def replace(text: str, at: int, source: random.Random) -> str:
    return text[:at] + source.choice(WORDS) + text[at + source.choice(SIZES) :]


def insert(text: str, at: int, source: random.Random) -> str:
    return text[:at] + source.choice(WORDS) + text[at:]


def splice(text: str, at: int, source: random.Random) -> str:
    return text[:at] + source.choice(CORPUS)[-at:]


def shuffle(text: str, _: int, source: random.Random) -> str:
    lines = text.split("\n")
    return "\n".join(source.sample(lines, len(lines)))


SIZES = (1, 1, 2, 5, 20, 80)
ACCIDENTS = (cut, double, replace, replace, insert, splice, shuffle)


def rounds(count: int) -> Iterator[random.Random]:
    """Sources of randomness, one a round: the same in each run, however fast the machine is."""
    return (random.Random(number) for number in range(count))


def outcome(read: Callable[[], object]) -> str:
    """Whether a file was read, or refused with a message; any other error is raised."""
    try:
        return "read" if read() else "read as nothing"
    except (FileError, InvalidValueError) as error:
        return "refused" if str(error).strip() else "refused without a word"


@pytest.mark.slow
@pytest.mark.sampled
def test_no_damaged_file_does_anything_but_play_or_be_refused() -> None:
    seen: Counter[str] = Counter()
    for source in rounds(FILES):
        text = damaged(source.choice(CORPUS), source).encode("utf-8", "surrogatepass")
        seen[outcome(partial(play, text))] += 1
    click.echo(f"damaged files: {dict(seen)}")
    assert set(seen) <= {"read", "read as nothing", "refused"}
    assert min(seen["read"], seen["refused"]) > 100


def play(text: bytes) -> int:
    return sum(1 for _ in answers(read_scenario(text, "s.yaml"), explain=True))


@pytest.mark.slow
@pytest.mark.sampled
def test_no_damaged_value_does_anything_but_be_read_or_be_refused() -> None:
    matrix = (
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV2\tPIX\t0-13\nGPU1\tNV2\t X \tSYS\t14\n"
    )
    texts = [*VALUES, "SYS(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))", matrix]
    readers: list[Callable[[Any], object]] = [
        lambda text: parse_share(text, "f"),
        lambda text: parse_memory(text, "f"),
        lambda text: parse_size(text, "f"),
        lambda text: parse_count(text, "f"),
        lambda text: parse_gpus(text, "f"),
        lambda text: read_notation(text, "f"),
        lambda text: read_matrix(text, "f"),
        lambda text: gpushare.amounts(text, text),
        lambda text: vcuda.amounts(text, text),
    ]
    seen: Counter[str] = Counter()
    for source in rounds(VALUES_READ):
        text = damaged(source.choice(texts), source)
        for reader in readers:
            seen[outcome(partial(reader, text))] += 1
    click.echo(f"damaged values: {dict(seen)}")
    assert set(seen) == {"read", "read as nothing", "refused"}
    assert min(seen.values()) > 100


@pytest.mark.slow
@pytest.mark.sampled
def test_no_damaged_manifest_does_anything_but_be_understood_or_be_refused() -> None:
    good: dict[str, Any] = {
        "request": "0.3",
        "limit": 1,
        "memory": "1Gi",
        "affinity": "red",
        "exclusion": "e",
        "id": "a",
        "ids": ["a", "b"],
        "count": 2,
        "model": "V100",
        "gpu_request": "0.3",
        "gpu_limit": "1",
        "gpu_mem": "1Gi",
        "sched_affinity": "red",
        "GPUID": "a",
        "sched_exclusion": "e",
    }
    fields = ["request", "limit", "memory", "affinity", "exclusion", "id", "ids", "count", "model"]
    keys = ["gpu_request", "gpu_limit", "gpu_mem", "sched_affinity", "GPUID", "sched_exclusion"]
    values: list[Any] = [
        *(*VALUES, None, True, -1, 0, 1, 0.5, float("nan"), float("inf"), 10**40, [], ["a"], {}),
        *({"a": 1}, "a", "a" * 300, ["a", "b"], [1], "é", "4Gi", 2),
    ]
    seen: Counter[str] = Counter()
    of_pods: Counter[str] = Counter()
    for source in rounds(MANIFESTS):
        gpu: Any = {key: good[key] for key in source.sample(fields, 3)}
        annotations: Any = {f"kubeshare/{key}": good[key] for key in keys if source.random() < 0.7}
        for written in (gpu, annotations):
            for key in source.sample(sorted(written), min(len(written), source.choice((0, 0, 1)))):
                written[key] = source.choice(values)
        manifest: dict[str, Any] = {
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {"gpu": gpu, "nodeName": source.choice(["", "n1"])},
        }
        if source.random() < 0.1:
            manifest[source.choice(["metadata", "spec"])] = source.choice(values)
        seen[outcome(partial(demand_of, manifest))] += 1
        ours = {f"kubeshare.nthu/{key}": value for key, value in gpu.items()}
        if source.random() < 0.7:
            metadata = {"name": "p", "annotations": ours, "labels": source.choice([{}, None, ours])}
        else:
            metadata = {"name": "p", "annotations": annotations | ours}
        of_pods[outcome(partial(pod.demand_of, {"metadata": metadata}))] += 1
    click.echo(f"damaged manifests: {dict(seen)}, of pods: {dict(of_pods)}")
    for counts in (seen, of_pods):
        assert set(counts) <= {"read", "read as nothing", "refused"}
        assert min(counts["read"], counts["refused"]) > 50


def test_the_corpus_is_yaml() -> None:
    assert len(CORPUS) > 50
    assert all(isinstance(yaml.safe_load(text), dict) for text in CORPUS)
