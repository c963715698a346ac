"""`kubeshare plan` from outside: what it refuses, how it streams, and what it says besides."""

import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from kubeshare.cli.main import main
from kubeshare.cli.plan.command import answers
from kubeshare.dialects.scenario.scenario import read_scenario
from kubeshare.dialects.scenario.yaml_events import MAX_BYTES

LOCALITY = "policy: locality\nnodes: [{name: n1, vgpus: [{id: A}]}]\nevents: []\n"
ASYMMETRIC = """\
policy: topology
nodes:
  - name: n1
    topoMatrix: |
      \tGPU0  GPU1  GPU2
      GPU0   X    PIX   SYS
      GPU1  PIX    X    SYS
      GPU2  SYS   PHB    X
events: []
"""

BAD = {
    "YAML that is not": ("policy: [locality\n", ":2: is not YAML: did not find expected"),
    "two documents": (f"{LOCALITY}---\n{LOCALITY}", ":4: is not YAML: a second document begins"),
    "an alias": ("policy: &p locality\nnodes: *p\nevents: []\n", ":2: is not YAML: aliases are"),
    "an empty file": ("", ":1: is empty"),
    "only a comment": ("# nothing\n", ":1: is empty"),
    "not text": (b"policy: \xff\n", ":1: is not text in UTF-8"),
    "an unknown key": (
        LOCALITY.replace("nodes:", "node:"),
        ":2: node: unknown key (did you mean nodes?)",
    ),
    "an unknown key of a node": (
        LOCALITY.replace("vgpus", "vgpu"),
        ":2: nodes[0].vgpu: unknown key (did you mean vgpus?)",
    ),
    "an unknown policy": (
        LOCALITY.replace("locality", "localty"),
        ":1: policy: policy localty is not registered; these are: binpack, locality, topology",
    ),
    "a field of another policy": (
        LOCALITY.replace("[]", "[{request: {name: p, cores: 100}}]"),
        ":3: events[0].request.cores: is a field of policy topology",
    ),
    "a field of another policy's nodes": (
        LOCALITY.replace("vgpus: [{id: A}]", "gpus: 1"),
        ":2: nodes[0].gpus: is a field of policies binpack and topology",
    ),
    "twice the same vGPU": (
        LOCALITY.replace("{id: A}", "{id: A}, {id: A}"),
        ":2: nodes[0].vgpus[1].id: node n1 has A twice",
    ),
    "twice the same node": (
        LOCALITY.replace("[{name", "[{name: n1}, {name"),
        ":2: nodes[1].name: node n1 is there twice",
    ),
    "twice the same request": (
        LOCALITY.replace("[]", "[{request: {name: p}}, {request: {name: p}}]"),
        ":3: events[1].request.name: p has asked or holds something already",
    ),
    "a release of nobody": (
        LOCALITY.replace("[]", "[{release: p}]"),
        ":3: events[0].release: no request or holder of that name: p",
    ),
    "a node that is not there": (
        LOCALITY.replace("[]", "[{request: {name: p, nodes: [n2]}}]"),
        ":3: events[0].request.nodes[0]: no node of that name: n2 (known: n1)",
    ),
    "a failure of a GPU that is not there": (
        LOCALITY.replace("[]", "[{fail: {node: n1, gpu: B}}]"),
        ":3: events[0].fail.gpu: node n1 has no vGPU B",
    ),
    "holders that over-commit from the start": (
        LOCALITY.replace("id: A", "id: A, holders: [{name: q, request: 1}, {name: r, request: 1}]"),
        ":2: nodes[0].vgpus[0]: vGPU A over-committed: compute 2 of 1",
    ),
    "more left than there is": (
        LOCALITY.replace("id: A", "id: A, memory: 17Gi"),
        ":2: nodes[0].vgpus[0].memory: more is left than the GPU has",
    ),
    "a topology that names a GPU twice": (
        'policy: topology\nnodes: [{name: n1, topology: "SYS(PIX(0,1),PIX(1,2))"}]\nevents: []\n',
        ":2: nodes[0].topology: names GPU 1 twice",
    ),
    "a topology that is none": (
        'policy: topology\nnodes: [{name: n1, topology: "SYS(0,1"}]\nevents: []\n',
        ":2: nodes[0].topology: ",
    ),
    "a matrix that is not symmetric": (
        ASYMMETRIC,
        ":4: nodes[0].topoMatrix: is not symmetric: GPU 1 to GPU 2 is SYS, back it is PHB",
    ),
    "a topology of another size": (
        'policy: topology\nnodes: [{name: n1, gpus: 3, topology: "PIX(0,1)"}]\nevents: []\n',
        ":2: nodes[0].gpus: 3 GPUs, and the topology names 2",
    ),
    "a GPU that the node does not have": (
        "policy: binpack\nnodes: [{name: n1, gpus: 2, vgpus: [{id: 2}]}]\nevents: []\n",
        ":2: nodes[0].vgpus[0].id: node n1 has no GPU 2, only 0 to 1",
    ),
    "a GPU that has no number": (
        "policy: binpack\nnodes: [{name: n1, vgpus: [{id: A}]}]\nevents: []\n",
        ":2: nodes[0].vgpus[0].id: node n1 has no GPU A, they are numbered from 0",
    ),
    "both spellings of a topology": (
        "policy: topology\nnodes: [{name: n1, topology: PIX0, topoMatrix: x}]\nevents: []\n",
        ":2: nodes[0].topoMatrix: says the same as topology: give one or the other",
    ),
    "a gang that does not say how many it needs": (
        LOCALITY.replace("[]", "[{request: {name: p, gang: {name: g}}}]"),
        ":3: events[0].request.gang: minAvailable is missing",
    ),
    "a label that is a number": (
        LOCALITY.replace("[]", "[{request: {name: p, affinity: 5}}]"),
        ":3: events[0].request.affinity: must be text (in quotes), not a number '5'",
    ),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_with_place_and_reason(
    text: str | bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert main(["plan", str(path), "-o", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert f"s.yaml{words}" in captured.err


@pytest.mark.parametrize("piped", [False, True])
def test_a_matrix_may_be_pasted_as_it_was_printed(piped: bool, tmp_path: Path) -> None:
    text = ASYMMETRIC.replace("PHB", "SYS").replace("[]", "[{request: {name: p, cores: 200}}]")
    path = tmp_path / "s.yaml"
    path.write_text(text)
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", "-" if piped else str(path)]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.startswith("0: p: bound n1/0 n1/1\n")


def test_a_file_past_the_limit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    with path.open("wb") as file:
        file.write(LOCALITY.encode())
        comment = b"# " + b"x" * 1021 + b"\n"
        file.write(comment * (MAX_BYTES // len(comment)))
    assert main(["plan", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"kubeshare: {path}: is larger than 64 MiB\n"


def test_what_was_answered_before_a_bad_event_stays_answered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(LOCALITY.replace("[]", "[{request: {name: p}}, {release: q}]"))
    assert main(["plan", str(path), "-o", "json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["name"] == "p"
    assert "events[1].release: no request or holder of that name: q (known: p)" in captured.err


def test_events_that_are_piped_in_are_answered_as_they_come() -> None:
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", "-", "-o", "json"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LOCALITY.replace(" []\n", "\n"))
        for number in range(3):
            # The parser looks at the line that follows to know that an item has ended.
            process.stdin.write(
                f"- request: {{name: p{number}, request: 0.4}}\n- release: p{number}\n"
            )
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["name"] == f"p{number}"
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_a_pipe_that_is_closed_is_no_answer() -> None:
    asked = "".join(f"- request: {{name: p{number}, request: 0.4}}\n" for number in range(2000))
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(LOCALITY.replace(" []\n", "\n") + asked)
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize(
    "text",
    [
        "events: [{request: {name: p}}]\npolicy: locality\nnodes: [{name: n1, free: 1}]\n",
        "policy: locality\nevents: [{request: {name: p}}]\nnodes: [{name: n1, free: 1}]\n",
    ],
)
def test_the_order_of_keys_does_not_matter_even_in_a_pipe(text: str) -> None:
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", "-", "-o", "json"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert json.loads(result.stdout)["decision"] == "bound"


def test_quota_that_follows_the_events_counts_in_a_file_and_is_refused_in_a_pipe() -> None:
    text = (
        "policy: locality\nnodes: [{name: n1, free: 1}]\n"
        "events: [{request: {name: p, request: 1, namespace: a}}]\nquota: [{namespace: a}]\n"
    )
    (answer,) = answers(read_scenario(text.encode(), "s.yaml"))
    assert answer.decision.field == "quota"
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "quota: must come before events where the file is piped in" in result.stderr


@pytest.mark.slow
@pytest.mark.slow
def test_many_events_need_no_more_memory_than_few() -> None:
    def peak(events: int) -> int:
        lines = (
            f"- request: {{name: p{number}, request: 0.3}}\n- release: p{number}\n"
            for number in range(events)
        )
        text = LOCALITY.replace(" []\n", "\n") + "".join(lines)
        stream = io.BytesIO(text.encode())
        tracemalloc.start()
        try:
            count = sum(1 for _ in answers(read_scenario(stream, "s.yaml")))
            assert count == events
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few = peak(2_000)  # fewer do not fill its buffers
    assert peak(10_000) < few + 200_000


def test_of_what_waits_it_says_whose_leaving_would_help_when_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        LOCALITY.replace(
            "[]", "[{request: {name: p, request: 0.6}}, {request: {name: q, request: 0.6}}]"
        )
    )
    assert main(["plan", str(path), "-o", "json", "--explain"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "change" not in first
    assert second["change"] == ["p leaves n1/A"]
    assert main(["plan", str(path), "--explain"]) == 0
    assert capsys.readouterr().out.endswith("    it fits when p leaves n1/A\n")
    assert main(["plan", str(path), "-o", "json"]) == 0
    assert "change" not in capsys.readouterr().out


def answered(events: str, *, explain: bool = False) -> list[tuple[int, str, str, dict[str, str]]]:
    """What the answers to events say, on two GPUs."""
    text = f"policy: locality\nnodes: [{{name: n1, vgpus: [{{id: A}}, {{id: B}}]}}]\n{events}"
    found = answers(read_scenario(text.encode(), "s.yaml"), explain=explain)
    return [
        (each.number, each.name, each.decision.outcome, dict(each.decision.reasons))
        for each in found
    ]


def test_what_waits_is_bound_by_priority_and_then_by_age() -> None:
    found = answered("""\
events:
- request: {name: p, request: 1}
- request: {name: q, request: 1}
- request: {name: low, request: 1, priority: -1}
- request: {name: high, request: 1, priority: 5}
- release: p
- release: q
""")
    assert [each[:3] for each in found[4:]] == [(3, "high", "bound"), (2, "low", "bound")]


GANG = """\
events:
- request: {name: p, request: 0.5}
- request: {name: a, request: 1, gang: {name: g, minAvailable: 2}}
- request: {name: b, request: 1, gang: {name: g, minAvailable: 2}}
- release: p
"""


def test_a_gang_is_bound_whole_or_not_at_all() -> None:
    _, first, second, *bound = answered(GANG)
    assert first[1:3] == ("a", "pending")
    assert first[3] == {"gang g": "1 of the 2 members that it needs are there"}
    assert second[3]["gang g"] == "room for 1 of the 2 members that it needs"
    assert second[3]["n1/A"] == "compute 0.5 left, 1 asked"
    assert [each[:3] for each in bound] == [(1, "a", "bound"), (2, "b", "bound")]


def test_of_a_gang_it_is_told_whose_leaving_would_let_it_in() -> None:
    text = f"policy: locality\nnodes: [{{name: n1, vgpus: [{{id: A}}, {{id: B}}]}}]\n{GANG}"
    _, first, second, *_ = answers(read_scenario(text.encode(), "s.yaml"), explain=True)
    assert first.change is None
    assert second.change is not None
    assert second.change.words == ("p leaves n1/A",)


NEAR = """\
policy: topology
nodes:
- {name: n1, domain: a, topology: "SYS(PIX(0,1),PIX(2,3))"}
- {name: n2, domain: b, topology: "SYS(PIX(0,1),2)", vgpus: [{id: 0, compute: 0, memory: 0}]}
- {name: n3, domain: a, topology: "PIX(0,1)", vgpus: [{id: 1, holders: [{name: q, cores: 50}]}]}
events:
- request: {name: x, cores: 100, nodes: [n1]}
"""


@pytest.mark.parametrize(
    ("near", "names", "places"),
    [
        ("switch", "ab", ["n1/2", "n1/3"]),
        ("node", "ab", ["n2/1", "n2/2"]),
        ("nodes", "abcd", ["n1/1", "n1/2", "n1/3", "n3/0"]),
    ],
)
def test_a_gang_is_placed_as_near_as_it_asks(near: str, names: str, places: list[str]) -> None:
    gang = f"gang: {{name: g, minAvailable: {len(names)}, near: {near}}}"
    text = "".join(f"- request: {{name: {name}, cores: 100, {gang}}}\n" for name in names)
    found = [each.decision for each in answers(read_scenario((NEAR + text).encode(), "s.yaml"))]
    bound = [each for each in found[1:] if each.outcome == "bound"]
    assert sorted(f"{each.node}/{each.devices[0]}" for each in bound) == places


def test_of_a_gang_on_one_node_it_is_told_whose_leaving_would_let_it_in() -> None:
    gang = "gang: {name: g, minAvailable: 4, near: node}"
    text = "".join(f"- request: {{name: {name}, cores: 100, {gang}}}\n" for name in "abcd")
    *_, last = answers(read_scenario((NEAR + text).encode(), "s.yaml"), explain=True)
    words = "room for 3 of the 4 members that it needs on one node"
    assert last.decision.reasons["gang g"] == words
    assert last.change is not None
    assert last.change.words == ("x leaves n1/0",)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("gang: {name: g, minAvailable: 2, near: rack}", "gang.near"),
        ("gang: {name: g, minAvailable: 2, near: node}", "gang.near"),
        ("priority: 101", "priority"),
        ("priority: high", "priority"),
        ("gang: {name: g, minAvailable: 0}", "gang.minAvailable"),
        ("gang: {name: g, minAvailable: 3}", "gang.minAvailable"),
        ("gang: {name: g, minAvailable: 2}, priority: 1", "priority"),
    ],
)
def test_a_standing_that_cannot_be_is_rejected_by_its_field(said: str, field: str) -> None:
    text = (
        f"{LOCALITY.removesuffix('events: []' + chr(10))}events:\n"
        "- request: {name: a, gang: {name: g, minAvailable: 2}}\n"
        f"- request: {{name: b, {said}}}\n"
    )
    _, second = answers(read_scenario(text.encode(), "s.yaml"))
    assert (second.decision.outcome, second.decision.field) == ("rejected", field)


def test_moves_are_those_of_the_state_after_the_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scenario.yaml"
    near = "gang: {name: g, minAvailable: 1, near: node}"
    for gang, frees in (("", [["n1/A"]]), (f", {near}", [])):
        file.write_text(
            "policy: locality\n"
            "nodes: [{name: n1, vgpus: [{id: A}, {id: B, compute: 0.1}, {id: C}]}]\n"
            "events:\n"
            "  - request: {name: first, request: 0.5}\n"
            f"  - request: {{name: second, request: 0.3{gang}}}\n"
            f"  - request: {{name: third, request: 0.4{gang}}}\n"
            "  - release: first\n"
        )
        assert main(["plan", "--defragment", "-o", "json", str(file)]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["frees"] for line in lines if "frees" in line] == frees
    assert main(["plan", "--defragment", str(file)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "defragment: no move frees one of the 3 GPUs in use (0 idle)"
