"""Scenario files: what they mean, and how they are refused."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubeshare.cli.main import main
from kubeshare.cli.plan.command import answers, plan
from kubeshare.core.units import GI, MI
from kubeshare.dialects.scenario.scenario import read_scenario
from kubeshare.dialects.scenario.strict_yaml import FileError
from kubeshare.dialects.scenario.yaml_events import MAX_BYTES

HEAD = "policy: locality\n"


def refusal(text: str | bytes) -> str:
    with pytest.raises(FileError) as caught:
        list(read_scenario(text.encode() if isinstance(text, str) else text, "s.yaml").events)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_node(node: str) -> str:
    return f"{HEAD}nodes:\n  - {node}\nevents: []\n"


def with_event(event: str) -> str:
    return (
        f"{HEAD}nodes: [{{name: n1, free: 1, vgpus: [{{id: A, holders: [{{name: q}}]}}]}}]\n"
        f"events:\n  - {event}\n"
    )


def test_defaults_are_those_of_the_objects() -> None:
    text = with_event("request: {name: p, request: 0.3}")
    scenario = read_scenario(text.encode(), "s.yaml")
    (event,) = scenario.events
    assert event.demand.limit_micros == 1_000_000  # type: ignore[union-attr]  # it is a request
    assert event.demand.memory.micros == 300_000  # type: ignore[union-attr]
    (free,) = scenario.ledger.nodes["n1"].free
    assert (free.model, free.memory_bytes) == ("", 16 * GI)


def test_a_vgpu_says_what_is_left_or_who_holds_it() -> None:
    text = with_node(
        "{name: n1, gpu: {model: V100, memory: 16384}, vgpus: ["
        "{id: A, compute: 0.5, memory: 8Gi,"
        " affinity: [red, blue], antiAffinity: [g], exclusion: e},"
        "{id: B, holders: [{name: q, request: 0.3, memory: 1Gi, antiAffinity: g}]},"
        "{id: C, model: A100, memoryTotal: 80Gi, memory: 0.5, exclusion: null},"
        "{id: D, idle: false}, {id: E, idle: true}], unhealthy: [E]}"
    )
    devices = read_scenario(text.encode(), "s.yaml").ledger.devices
    a, b, c = devices["A"], devices["B"], devices["C"]
    assert (a.model, a.memory_bytes, a.compute_left, a.memory_left) == (
        "V100",
        16384 * MI,
        500_000,
        8 * GI,
    )
    assert a.affinities == {"red", "blue"}
    assert a.anti_affinities == b.anti_affinities == {"g"}
    assert a.exclusions == {"e"}
    assert (b.compute_left, b.memory_left) == (700_000, 15 * GI)
    assert (c.model, c.memory_left, c.idle) == ("A100", 40 * GI, False)
    assert not devices["D"].idle
    assert devices["D"].compute_left == 1_000_000
    assert devices["E"].idle
    assert not devices["E"].healthy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "s.yaml:1: is empty"),
        ("# nothing\n", "s.yaml:1: is empty"),
        ("policy: [1\n", "s.yaml:2: is not YAML"),
        ("policy: 1\n--- \nb: 2\n", "s.yaml:2: is not YAML"),
        ("\x00", "s.yaml:1: is not YAML"),
        (b"policy: \n\xff\xfe", "s.yaml:2: is not text in UTF-8"),
        ("policy: &x [1]\nnodes: *x\n", "s.yaml:2: is not YAML: aliases are not read"),
        ("- 1", "s.yaml:1: the file: must be a mapping, not a list"),
        ("just text", "s.yaml:1: the file: must be a mapping, not text 'just text'"),
        ("{[1]: 2}", "the file: has a key that is not text"),
        ("nodes: []\nevents: []\n", "the file: policy is missing"),
        (HEAD + "events: []\n", "the file: nodes is missing"),
        (HEAD + "nodes: []\n", "the file: events is missing"),
        (HEAD + "nodes:\nevents: []\n", "the file: nodes is missing"),
        (HEAD + "event: []\n", "s.yaml:2: event: unknown key (did you mean events?)"),
        (HEAD + "zzz: []\n", "zzz: unknown key (known: policy, labelScope, nodes, quota, events)"),
        (HEAD + HEAD, "s.yaml:2: policy: is given twice"),
        (
            "policy: nearest\nnodes: []\nevents: []\n",
            "s.yaml:1: policy: policy nearest is not registered; these are: binpack",
        ),
        (
            HEAD + "nodes: []\nquota: [{namespace: a, gpu: 1}]\nevents: []\n",
            "s.yaml:3: quota[0].gpu: unknown key (did you mean gpus?)",
        ),
        (
            HEAD + "nodes: []\nquota: [{pool: a, gpus: 1}]\nevents: []\n",
            "s.yaml:3: quota[0]: namespace is missing",
        ),
        (
            HEAD + "nodes: []\nquota: [{namespace: a, gpus: .nan}]\nevents: []\n",
            's.yaml:3: quota[0].gpus: ".nan" is not a number',
        ),
        (
            HEAD + "nodes: []\nquota: [{namespace: a}, {namespace: a, gpus: 1}]\nevents: []\n",
            "s.yaml:3: quota[1]: says the same namespace, pool and model as a row before it",
        ),
    ],
    ids=repr,
)
def test_a_file_that_is_no_scenario_is_refused_with_its_line(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    assert refusal("[" * 20_000) == "s.yaml:1: is nested more than 64 deep"


def test_a_file_that_is_too_large_is_refused() -> None:
    assert refusal(b" " * (MAX_BYTES + 1)) == "s.yaml: is larger than 64 MiB"


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("n1", "s.yaml:3: nodes[0]: must be a mapping, not text 'n1'"),
        ("{free: 1}", "nodes[0]: name is missing"),
        ("{name: 7}", "nodes[0].name: must be text (in quotes), not a number '7'"),
        ("{name: yes}", "nodes[0].name: must be text (in quotes), not true or false 'yes'"),
        ('{name: ""}', "nodes[0].name: is empty"),
        ("{name: n1}\n  - {name: n1}", "s.yaml:4: nodes[1].name: node n1 is there twice"),
        ("{name: n1, fre: 1}", "nodes[0].fre: unknown key (did you mean free?)"),
        ("{name: n1, gpus: 8}", "nodes[0].gpus: is a field of policies binpack and topology"),
        ("{name: n1, gpus: 8, owned: false}", "nodes[0].gpus: is a field of policies binpack and"),
        ("{name: n1, placement: spread}", "nodes[0].placement: is a field of policy binpack"),
        ("{name: n1, owned: 1}", "nodes[0].owned: must be true or false, not a number '1'"),
        ("{name: n1, owned: true, free: 1}", "nodes[0].free: an owned node has no free GPU: each"),
        ("{name: n1, free: -1}", "nodes[0].free: must be from 0 to 100000"),
        ("{name: n1, free: 1.5}", "nodes[0].free: must be a whole number, not a number '1.5'"),
        ("{name: n1, free: 99999999999999999999}", "nodes[0].free: must be a whole number"),
        ("{name: n1, free: 0x10}", "nodes[0].free: must be a whole number"),
        ("{name: n1, gpu: 16Gi}", "nodes[0].gpu: must be a mapping"),
        ("{name: n1, gpu: {memory: lots}}", 'nodes[0].gpu.memory: "lots" is not a number'),
        ("{name: n1, gpu: {memory: 0}}", "nodes[0].gpu.memory: a GPU has some memory"),
        ("{name: n1, vgpus: {}}", "nodes[0].vgpus: must be a list, not a mapping"),
        ("{name: n1, vgpus: [{}]}", "nodes[0].vgpus[0]: id is missing"),
        (
            "{name: n1, vgpus: [{id: A}, {id: A}]}",
            "s.yaml:3: nodes[0].vgpus[1].id: node n1 has A twice",
        ),
        ("{name: n1, vgpus: [{id: A, compute: 2}]}", "vgpus[0].compute: 2 is more than 1"),
        ("{name: n1, vgpus: [{id: A, compute: [1]}]}", "compute: must be a number, not a list"),
        ("{name: n1, vgpus: [{id: A, memory: 99Gi}]}", "memory: more is left than the GPU has"),
        ("{name: n1, vgpus: [{id: A, affinity: red}]}", "affinity: must be a list, not text"),
        ("{name: n1, vgpus: [{id: A, idle: 1}]}", "idle: must be true or false, not a number"),
        (
            "{name: n1, vgpus: [{id: A, idle: true, compute: 0.5}]}",
            "idle: an idle vGPU has everything left and no labels",
        ),
        (
            "{name: n1, vgpus: [{id: A, compute: 0.5, holders: []}]}",
            "compute: follows from the holders: give one or the other",
        ),
        (
            "{name: n1, vgpus: [{id: A, holders: [{name: q, request: 2}]}]}",
            "holders[0].request: 2 is more than 1, a whole GPU",
        ),
        (
            "{name: n1, vgpus: [{id: A, holders: [{name: q, request: 1}, {name: r, request: 1}]}]}",
            "vgpus[0]: vGPU A over-committed: compute 2 of 1",
        ),
        (
            "{name: n1, vgpus: [{id: A, holders: [{name: q, memory: 17Gi}]}]}",
            "vgpus[0]: vGPU A over-committed: memory 17Gi of 16Gi",
        ),
        (
            "{name: n1, vgpus: [{id: A, holders: [{name: q}, {name: q}]}]}",
            "vGPU A has a demand twice among its holders",
        ),
        ("{name: n1, unhealthy: [A]}", "unhealthy[0]: node n1 has no vGPU A"),
        (
            "{name: n1, vgpus: [{id: A, holders: [{name: q, gpuMem: 1}]}]}",
            "holders[0].gpuMem: is a field of policy binpack",
        ),
    ],
    ids=repr,
)
def test_a_bad_node_is_refused_with_line_and_field(node: str, words: str) -> None:
    assert words in refusal(with_node(node))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{}", "s.yaml:4: events[0]: must be one of request, release and fail"),
        ("{release: q, fail: {node: n1, gpu: A}}", "must be one of request, release and fail"),
        ("{requst: {name: p}}", "requst: unknown key (did you mean request?)"),
        ("request: {request: 0.5}", "events[0].request: name is missing"),
        ("request: {name: q}", "request.name: q has asked or holds something already"),
        ("request: {name: p, gpuMem: 1}", "request.gpuMem: is a field of policy binpack"),
        ("request: {name: p, cores: 1}", "request.cores: is a field of policy topology"),
        ("request: {name: p, limmit: 1}", "request.limmit: unknown key (did you mean limit?)"),
        ("request: {name: p, limit: {}}", "request.limit: must be a number, not a mapping"),
        ("request: {name: p, limit: true}", "request.limit: must be a number, not true or false"),
        ("request: {name: p, count: 1.5}", "request.count: must be a whole number"),
        ("request: {name: p, affinity: 5}", "affinity: must be text (in quotes)"),
        ("request: {name: p, nodes: n1}", "request.nodes: must be a list, not text 'n1'"),
        (
            "request: {name: p, nodes: [n11]}",
            "request.nodes[0]: no node of that name: n11 (did you mean n1?)",
        ),
        ("release: p", "events[0].release: no request or holder of that name: p (known: q)"),
        (
            "release: q\n  - release: q",
            "s.yaml:5: events[1].release: no request or holder of that name: q",
        ),
        ("fail: {node: n1}", "events[0].fail: gpu is missing"),
        ("fail: {node: n2, gpu: A}", "fail.node: no node of that name: n2 (known: n1)"),
    ],
    ids=repr,
)
def test_a_bad_event_is_refused_with_line_and_field(event: str, words: str) -> None:
    assert words in refusal(with_event(event))


def test_a_failure_of_a_gpu_that_is_not_there_is_refused_when_it_comes() -> None:
    text = with_event("fail: {node: n1, gpu: B}")
    with pytest.raises(FileError, match=r"s.yaml:4: events\[0\].fail.gpu: node n1 has no vGPU B"):
        list(answers(read_scenario(text.encode(), "s.yaml")))


def test_a_released_name_may_be_used_again() -> None:
    text = with_event(
        "request: {name: p, request: 1}\n  - release: p\n  - request: {name: p, request: 1}"
    )
    played = list(answers(read_scenario(text.encode(), "s.yaml")))
    assert [(answer.number, answer.decision.outcome) for answer in played] == [
        (0, "bound"),
        (2, "bound"),
    ]


def test_a_request_that_is_withdrawn_while_it_waits_is_never_answered_again() -> None:
    text = with_event(
        "request: {name: first, request: 1}\n"
        "  - request: {name: second, request: 1}\n"
        "  - request: {name: withdrawn, request: 1}\n"
        "  - request: {name: patient, request: 1}\n"
        "  - release: withdrawn\n"
        "  - release: first\n"
    )
    played = list(answers(read_scenario(text.encode(), "s.yaml")))
    assert [(each.number, each.name, each.decision.outcome) for each in played] == [
        (0, "first", "bound"),
        (1, "second", "bound"),
        (2, "withdrawn", "pending"),
        (3, "patient", "pending"),
        (3, "patient", "bound"),
    ]


def test_mistakes_leave_by_the_front_door_with_one_line_and_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(with_event("request: {name: p, limmit: 1}"))
    assert main(["plan", str(path), "-o", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "s.yaml:4: events[0].request.limmit: unknown key" in captured.err


def test_a_file_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "no-such-file.yaml"]) == 2
    assert "no-such-file.yaml" in capsys.readouterr().err


def test_people_get_text_and_may_pipe_the_scenario_in() -> None:
    text = with_event(
        "request: {name: p, request: 1, affinity: red}\n  - request: {name: r, limit: 2}"
    )
    result = CliRunner().invoke(plan, ["-"], input=text, catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("0: p: bound n1/vgpu-")
    assert lines[0].endswith(" (new)")
    assert lines[1] == "    n1/A: occupied, and affinity red asks for an idle or a new vGPU"
    assert lines[2] == "1: r: rejected (limit)"
    assert lines[3] == "    limit: 2 is more than 1, a whole GPU"


FRAGMENTS = st.sampled_from(
    [
        *("policy: ", "locality", "\n", "nodes: ", "events: ", "- ", "  ", "[", "]", "{", "}"),
        *(", ", "name: ", "n1", "request: ", "release: ", "fail: ", "vgpus: ", "id: ", "A", "0.5"),
        *("holders: ", "memory: ", "1Gi", ".nan", "-1", "null", "!!binary ", "&a ", "*a", "? "),
        *("<<: ", "'", '"', "|", ">", "%", "@", "\t", "\u00e9", "2020-01-01", "!x ", "\x07"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAGMENTS, max_size=30).map("".join) | st.text(max_size=60))
@example("policy: locality\nnodes: [{name: n1, free: !!int x}]\nevents: []\n")
@example("policy: locality\nnodes: [{name: n1, vgpus: [{id: A, idle: !!bool x}]}]\nevents: []\n")
@example("!!map x")
def test_no_text_does_anything_but_play_or_be_refused(text: str) -> None:
    try:
        scenario = read_scenario(text.encode("utf-8", "surrogatepass"), "s.yaml")
    except FileError as error:
        message = str(error)
    else:
        message = f"s.yaml: {len(list(answers(scenario)))} answers"
    assert message.startswith("s.yaml:")


def test_gpus_of_a_node_are_numbered() -> None:
    text = (
        "policy: binpack\n"
        "nodes:\n"
        "  - {name: n1, pool: p, gpu: {memory: 100}, gpus: 3, unhealthy: [2],"
        ' vgpus: [{id: "1", memory: 60, holders: null}, {id: 0, holders:'
        " [{name: q, gpuMem: 30, namespace: a, group: g}]}]}\n"
        "  - {name: n2, vgpus: [{id: 5, model: T4, memoryTotal: 8Gi, compute: 0.5}]}\n"
        "events: []\n"
    )
    ledger = read_scenario(text.encode(), "s.yaml").ledger
    assert sorted(ledger.devices) == ["n1/0", "n1/1", "n1/2", "n2/5"]
    first, second, third = (ledger.devices[f"n1/{number}"] for number in range(3))
    assert (first.index, first.path, first.memory_left) == (0, "n1/0", 70 * MI)
    (holder,) = first.holders
    assert (holder.request_micros, holder.namespace, holder.group) == (300_000, "a", "g")
    assert (second.memory_left, second.compute_left) == (60 * MI, 1_000_000)
    assert not third.healthy
    other = ledger.devices["n2/5"]
    assert (other.model, other.memory_bytes, other.compute_left) == ("T4", 8 * GI, 500_000)
    assert ledger.nodes["n1"].pool == "p"


def test_a_node_of_gpushare_packs_or_spreads() -> None:
    text = "policy: binpack\nnodes:\n  - {{name: n1, gpus: 2, placement: {}}}\nevents: []\n"
    for placement in ("binpack", "spread"):
        [node] = read_scenario(text.format(placement).encode(), "s.yaml").ledger.nodes.values()
        assert node.spread is (placement == "spread")
    assert "s.yaml:3: nodes[0].placement: must be binpack or spread" in refusal(text.format("even"))


@pytest.mark.parametrize("policy", ["locality", "binpack", "topology"])
def test_all_gpus_of_an_owned_node_are_vgpus(policy: str) -> None:
    text = (
        f"policy: {policy}\nnodes:\n"
        "  - {name: n1, owned: true, gpus: 2, unhealthy: [1]}\n"
        "  - {name: n2, owned: true, topology: 'PIX(0,1)', vgpus: [{id: 1, compute: 0.5}]}\n"
        "events: []\n"
    )
    ledger = read_scenario(text.encode(), "s.yaml").ledger
    assert [(device.path, device.idle, device.healthy) for device in ledger.devices.values()] == [
        ("n1/0", True, True),
        ("n1/1", True, False),
        ("n2/0", True, True),
        ("n2/1", False, True),
    ]
    assert [node.free for node in ledger.nodes.values()] == [(), ()]


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("0Mi", 0),
        ("0", 0),
        ("0.0Gi", 0),
        ("'0'", 0),
        ("1", 16 * GI),
        ("0.5", 8 * GI),
        ("1Mi", MI),
        ("2", 2 * MI),
    ],
)
def test_what_is_left_of_a_gpus_memory_may_be_nothing(left: str, expected: int) -> None:
    text = with_node(f"{{name: n1, vgpus: [{{id: A, memory: {left}}}]}}")
    (device,) = read_scenario(text.encode(), "s.yaml").ledger.devices.values()
    assert device.memory_left == expected


def test_a_gpu_that_fails_is_named_by_its_number() -> None:
    text = (
        "policy: topology\n"
        'nodes: [{name: n1, topology: "PIX(0,1)"}]\n'
        "events:\n"
        "  - fail: {node: n1, gpu: 0}\n"
        '  - fail: {node: n1, gpu: "1"}\n'
        "  - request: {name: p, cores: 100}\n"
    )
    (answer,) = answers(read_scenario(text.encode(), "s.yaml"))
    assert dict(answer.decision.reasons) == {"n1/0": "unhealthy", "n1/1": "unhealthy"}


def test_what_a_family_asks_is_refused_under_the_name_that_it_has_there() -> None:
    text = (
        "policy: topology\nnodes: [{name: n1, gpus: 2}]\nevents:\n"
        "  - request: {name: a, cores: 150}\n"
        "  - request: {name: b, cores: 50, memoryBlocks: 65}\n"
        "  - request: {name: c, cores: 300}\n"
        "  - request: {name: d}\n"
    )
    played = list(answers(read_scenario(text.encode(), "s.yaml")))
    assert [answer.decision.field for answer in played] == [
        "cores",
        "memoryBlocks",
        "cores",
        "cores",
    ]
    assert all(answer.decision.outcome == "rejected" for answer in played)
    for answer in played:
        assert answer.decision.field in answer.decision.reasons


def test_a_holder_of_any_family_may_be_written_as_a_share() -> None:
    text = (
        "policy: topology\nnodes: [{name: n1, gpus: 1, vgpus: [{id: 0, holders: ["
        "{name: q, request: 0.25, memory: 1Gi}, {name: r, cores: 50, memoryBlocks: 4}]}]}]\n"
        "events: []\n"
    )
    (device,) = read_scenario(text.encode(), "s.yaml").ledger.devices.values()
    assert (device.compute_left, device.memory_left) == (250_000, 14 * GI)
    wrong = text.replace("memory: 1Gi", "memory: -1")
    assert "nodes[0].vgpus[0].holders[0].memory: -1 is negative" in refusal(wrong)
    wrong = text.replace("cores: 50", "cores: 150")
    assert "holders[1].cores: 150 is more than one GPU" in refusal(wrong)


AMOUNTS = {"locality": "request: 0.1", "binpack": "gpuMem: 100", "topology": "cores: 10"}


def decided(policy: str, scope: str, *requests: str) -> list[str]:
    """The GPU of each request on a node with two, "" if it is pending."""
    top = f"policy: {policy}\n{scope}nodes: [{{name: n1, owned: true, gpus: 2}}]\nevents:\n"
    asked = [
        f"  - request: {{name: p{number}, {AMOUNTS[policy]}, {labels}}}\n"
        for number, labels in enumerate(requests)
    ]
    scenario = read_scenario((top + "".join(asked)).encode(), "s.yaml")
    return ["".join(answer.decision.devices) for answer in answers(scenario)]


@pytest.mark.parametrize("policy", AMOUNTS)
@pytest.mark.parametrize("label", ["affinity: x", "exclusion: x"])
@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("", ["0", "0"]),
        ("labelScope: cluster\n", ["0", "0"]),
        ("labelScope: namespace\n", ["0", "1"]),
    ],
)
def test_labels_belong_to_the_cluster_or_to_a_namespace(
    policy: str, label: str, scope: str, expected: list[str]
) -> None:
    requests = [f"namespace: a, {label}", f"namespace: b, {label}"]
    assert decided(policy, scope, *requests) == expected


@pytest.mark.parametrize("policy", AMOUNTS)
def test_requests_of_every_family_may_have_labels(policy: str) -> None:
    requests = ["antiAffinity: g", "antiAffinity: g", "antiAffinity: g", "exclusion: e"]
    assert decided(policy, "", *requests) == ["0", "1", "", ""]


def test_another_scope_of_labels_is_refused() -> None:
    words = "s.yaml:2: labelScope: must be cluster or namespace"
    assert words in refusal(HEAD + "labelScope: pod\nnodes: []\nevents: []\n")
