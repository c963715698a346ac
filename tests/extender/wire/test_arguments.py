"""Arguments of kube-scheduler's calls are read in every accepted form, and refused in words."""

from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshare.extender.wire.arguments import (
    MAX_NODES,
    NO_NODES,
    NO_POD,
    BindArguments,
    Victims,
    read_bind,
    read_filter,
    read_preempt,
)
from kubeshare.extender.wire.reading import MessageError

POD = '{"metadata": {"name": "p", "namespace": "default", "uid": "u"}}'
NODE = '{"kind": "Node", "metadata": {"name": "n1"}, "status": {"images": []}}'


def filter_body(pod: str = POD, **fields: str) -> bytes:
    parts = {"Pod": pod, **fields}
    return ("{" + ", ".join(f'"{key}": {value}' for key, value in parts.items()) + "}").encode()


@pytest.mark.parametrize(
    "body",
    [
        filter_body(NodeNames='["n1", "n2"]'),
        filter_body(NodeNames='["n1", "n2"]', Nodes="null"),
        filter_body(NodeNames='["n1", "n2"]', Nodes=f'{{"items": [{NODE}]}}'),
        filter_body(NodeNames='["n1", "n2", "n1"]'),
        f'{{"pod": {POD}, "nodenames": ["n1", "n2"]}}'.encode(),
        f'{{"POD": {POD}, "NODENAMES": ["n1", "n2"]}}'.encode(),
        f'{{"Pod": null, "pod": {POD}, "nodeNames": ["n1", "n2"], "Unknown": 1}}'.encode(),
    ],
)
def test_names_of_nodes(body: bytes) -> None:
    arguments = read_filter(body)
    assert arguments.metadata.uid == arguments.pod["metadata"]["uid"] == "u"
    assert arguments.candidates.names == ("n1", "n2")
    assert arguments.candidates.objects is None


@pytest.mark.parametrize("key", ["Nodes", "nodes"])
@pytest.mark.parametrize("items", ["items", "Items"])
def test_whole_nodes_are_kept_as_they_were_sent(key: str, items: str) -> None:
    found = read_filter(filter_body(**{key: f'{{"metadata": {{}}, "{items}": [{NODE}]}}'}))
    assert found.candidates.names == ("n1",)
    assert found.candidates.objects == {"n1": msgspec.Raw(NODE.encode())}


@pytest.mark.parametrize("items", ["[]", "null"])
def test_no_node_is_a_list_of_none(items: str) -> None:
    candidates = read_filter(filter_body(Nodes=f'{{"items": {items}}}')).candidates
    assert candidates.names == ()
    assert candidates.objects == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b"  \n", "EOF"),
        (b"{", "unexpected EOF"),
        (b'{"Pod": {"metadata"', "unexpected EOF"),
        (b"null", NO_POD),
        (b"{}", NO_POD),
        (b'{"Pod": null, "NodeNames": ["n1"]}', NO_POD),
        (filter_body(), NO_NODES),
        (filter_body(NodeNames="null", Nodes="null"), NO_NODES),
        (b"[]", "Expected `object | null`, got `array`"),
        (b"nonsense", "JSON is malformed"),
        (filter_body() + b"}", "trailing characters"),
        (filter_body(pod="1", NodeNames="[]"), "Pod: Expected `object`"),
        (filter_body(pod="{}", NodeNames="[]"), "Pod: .*missing required field `metadata`"),
        (filter_body(pod='{"metadata": {"labels": {"a": 1}}}', NodeNames="[]"), "Pod: .*labels"),
        (filter_body(NodeNames='"n1"'), "NodeNames: Expected `array`"),
        (filter_body(NodeNames="[1]"), "NodeNames: Expected `str`"),
        (filter_body(Nodes="[]"), "Nodes: Expected `object`"),
        (filter_body(Nodes='{"items": [1]}'), "Nodes.items: Expected `object`"),
        (filter_body(pod='{"a":' * 300 + "1" + "}" * 300), "more than 256 levels deep"),
        (b'{"Pod":' + b"[" * 100_000, "more than 256 levels deep"),
        (b"\xff", "malformed"),
        (b'{"\xff": 1}', "utf-8"),
        (filter_body(NodeNames="[" + ",".join(['"n"'] * (MAX_NODES + 1)) + "]"), "are more than"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        read_filter(body)


def test_brackets_in_text_are_no_levels() -> None:
    pod = f'{{"metadata": {{"name": "p", "annotations": {{"a": "{"[" * 1000}"}}}}}}'
    assert read_filter(filter_body(pod, NodeNames='["n1"]')).metadata.name == "p"


@pytest.mark.parametrize(
    "body",
    [
        b'{"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}',
        b'{"podname": "p", "podNamespace": "ns", "PODUID": "u", "node": "n1", "more": {}}',
    ],
)
def test_a_binding(body: bytes) -> None:
    assert read_bind(body) == BindArguments("p", "ns", "u", "n1")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b"null", "PodName: is missing"),
        (b'{"PodName": "p", "PodNamespace": "ns", "PodUID": "u"}', "Node: is missing"),
        (b'{"PodName": "", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}', "PodName: is miss"),
        (b'{"PodName": 1}', "PodName: Expected `str`"),
        (b'{"PodName": "' + b"p" * 254 + b'"}', "PodName: is longer than 253"),
    ],
)
def test_an_incomplete_binding_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        read_bind(body)


@pytest.mark.parametrize(
    "victims",
    [
        '"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}',
        '"nodenametometavictims": {"n1": {"pods": [{"uid": "v"}], "numpdbviolations": 1}}',
        (
            '"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "v"}}], '
            '"NumPDBViolations": 1}}'
        ),
    ],
)
def test_victims(victims: str) -> None:
    arguments = read_preempt(f'{{"Pod": {POD}, {victims}}}'.encode())
    assert arguments.victims == {"n1": Victims(("v",), 1)}


@pytest.mark.parametrize(
    ("victims", "words"),
    [
        ('"A": 1', "NodeNameToVictims: is missing"),
        ('"NodeNameToVictims": []', "NodeNameToVictims: Expected `object`"),
        ('"NodeNameToVictims": {"n1": []}', "victims of n1: Expected `object`"),
        ('"NodeNameToVictims": {"n1": {"Pods": [1]}}', "Pods: Expected `object`"),
        ('"NodeNameToMetaVictims": {"n1": {"Pods": {}}}', "Pods: Expected `array`"),
    ],
)
def test_unreadable_victims_are_refused(victims: str, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        read_preempt(f'{{"Pod": {POD}, {victims}}}'.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
KEYS = st.sampled_from(["Pod", "Nodes", "NodeNames", "PodName", "Node", "NodeNameToVictims"])


@given(
    st.binary(max_size=200) | st.dictionaries(KEYS, JSON).map(msgspec.json.encode),
    st.sampled_from([read_filter, read_bind, read_preempt]),
)
def test_any_body_is_read_or_refused(body: bytes, read: Callable[[bytes], object]) -> None:
    with suppress(MessageError):
        read(body)
