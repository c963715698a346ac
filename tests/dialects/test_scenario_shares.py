"""Requests of several different shares in a scenario, in the fields of each policy."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshare.cli.plan.command import plan
from kubeshare.dialects.scenario.scenario import read_scenario
from kubeshare.dialects.scenario.strict_yaml import FileError

POOLED = "{name: n1, vgpus: [{id: A}, {id: B}, {id: C}]}"
NUMBERED = "{name: n1, gpus: 3}"


def scenario(policy: str, request: str) -> str:
    node = POOLED if policy == "locality" else NUMBERED
    return f"policy: {policy}\nnodes: [{node}]\nevents:\n  - request: {{name: p, {request}}}\n"


def answer(policy: str, request: str) -> dict[str, Any]:
    text = scenario(policy, request)
    result = CliRunner().invoke(plan, ["-", "-o", "json"], input=text, catch_exceptions=False)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("policy", "request_", "shares"),
    [
        ("locality", "request: 2.5", {"whole": ["A", "B"], "rest": ["C"]}),
        (
            "locality",
            "shares: [{name: s, request: .5, memory: 1Gi}, {name: t, limit: .5, memory: .1}]",
            {"s": ["A"], "t": ["B"]},
        ),
        (
            "locality",
            (
                "shares: [{name: s, request: .5, containers: [a]}, "
                "{name: t, request: .1, containers: [b]}]"
            ),
            {"s": ["A"], "t": ["A"]},
        ),
        (
            "binpack",
            "shares: [{name: s, gpuMem: 1000, gpuCount: 2}, {name: t, gpuMem: 50}]",
            {"s": ["0", "1"], "t": ["2"]},
        ),
        (
            "topology",
            "shares: [{name: s, cores: 50, memoryBlocks: 4}, {name: t, cores: 200}]",
            {"s": ["2"], "t": ["0", "1"]},
        ),
    ],
)
def test_each_policy_has_shares_in_its_own_fields(
    policy: str, request_: str, shares: dict[str, list[str]]
) -> None:
    found = answer(policy, request_)
    assert (found["decision"], found["node"]) == ("bound", "n1")
    assert found["shares"] == shares
    assert found["gpus"] == sorted({gpu for gpus in found["shares"].values() for gpu in gpus})


def test_the_short_form_has_no_shares_in_its_answer() -> None:
    assert "shares" not in answer("locality", "request: 0.5")
    assert answer("locality", "request: 2")["gpus"] == ["A", "B"]


@pytest.mark.parametrize(
    ("policy", "request_", "field", "words"),
    [
        ("locality", "shares: [{name: s, limit: 2}]", "shares[s].limit", "more than 1"),
        ("locality", "shares: [{name: s, request: 2}]", "shares[s].request", "more than 1"),
        ("locality", "shares: [{name: s, memory: 99Gi}]", "shares.s.memory", "largest GPU has"),
        ("locality", "shares: [{name: s}, {name: s}]", "shares", "two shares of the name s"),
        ("locality", "request: 2.5, memory: 1Gi", "request", "leave memory out"),
        ("locality", "request: 2, limitAlone: 1", "request", "leave limitAlone out"),
        ("locality", "request: 0.5, limit: 0.6, limitAlone: 0.5", "limitAlone", "limit 0.6 to 1"),
        ("locality", "request: 17", "request", "more than 16 GPUs"),
        ("locality", "id: A, shares: [{name: s, request: 1}]", "id", "cannot ask for one vGPU"),
        ("binpack", "shares: [{name: s, gpuMem: 0}]", "shares[s].gpuMem", "no GPU memory"),
        ("topology", "shares: [{name: s, cores: 150}]", "shares[s].cores", "not a multiple"),
        ("locality", "shares: [{name: s, request: 1, count: 4}]", "shares.s.count", "4 GPUs asked"),
    ],
)
def test_what_no_cluster_can_satisfy_is_rejected_by_its_field(
    policy: str, request_: str, field: str, words: str
) -> None:
    found = answer(policy, request_)
    assert (found["decision"], found["field"]) == ("rejected", field)
    assert words in found["reasons"][field]


@pytest.mark.parametrize(
    ("policy", "request_", "words"),
    [
        ("locality", "shares: []", "request.shares: lists no share"),
        ("locality", "shares: [{request: 1}]", "shares[0]: name is missing"),
        ("locality", "shares: [{name: s, size: 1}]", "shares[0].size: unknown key"),
        ("locality", "count: 2, shares: [{name: s}]", "count: is for one share, and several"),
        ("binpack", "shares: [{name: s, request: 1}]", "shares[0].request: unknown key"),
    ],
)
def test_a_wrong_form_is_refused_with_its_place(policy: str, request_: str, words: str) -> None:
    with pytest.raises(FileError) as caught:
        list(read_scenario(scenario(policy, request_).encode(), "s.yaml").events)
    assert words in str(caught.value)
