"""Values that are nested too deeply are dropped, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.client.decoding import decoder_for
from kubeshare.kube.client.json_depth import MAX_DEPTH, drop_deep_values, limit_depth
from kubeshare.kube.meta import ObjectMeta

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{}é\n', max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
)


def nested(levels: int) -> str:
    """Lists and maps in turns."""
    opened = "".join('{"a":' if level % 2 else "[" for level in range(levels))
    return f"{opened}1" + "".join("}" if level % 2 else "]" for level in reversed(range(levels)))


@pytest.mark.slow
@given(values)
def test_what_is_shallow_stays_to_the_letter(value: Any) -> None:
    for text in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()):
        assert limit_depth(text) == drop_deep_values(text) == text


@pytest.mark.slow
@given(values, st.integers(MAX_DEPTH - 2, MAX_DEPTH + 3))
def test_deeper_values_become_null_and_all_others_stay(value: Any, levels: int) -> None:
    text = f'{{"deep":{nested(levels)},"beside":{json.dumps(value)}}}'.encode()
    read = json.loads(limit_depth(text))
    assert read["beside"] == value
    deep, seen = read["deep"], 1
    while isinstance(deep, (list, dict)):
        deep, seen = deep[0] if isinstance(deep, list) else deep["a"], seen + 1
    assert (deep, seen) == ((1, levels + 1) if levels < MAX_DEPTH else (None, MAX_DEPTH))


def strange(levels: int) -> bytes:
    """A SharePod of which the schema keeps what it does not know."""
    spec = f'{{"containers":[{{"name":"main"}}],"other":{nested(levels)}}}'
    return f'{{"metadata":{{"name":"a"}},"spec":{spec}}}'.encode()


class Named(Struct):
    metadata: ObjectMeta


class Page(Struct):
    items: list[Raw]


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 900, 1100, 9000])
def test_an_object_is_read_however_deeply_its_author_has_nested_it(levels: int) -> None:
    body = strange(levels)
    line = b'{"type":"ADDED","object":' + body + b"}"
    for shape in (SHAREPODS.shape, dict):
        for read in (decoder_for(shape).decode(body), decoder_for(shape).decode_line(line).object):
            assert read["metadata"] == {"name": "a"}
            assert read["spec"]["containers"] == [{"name": "main"}]
            assert "null" in json.dumps(read["spec"]["other"])
    assert decoder_for(Named).decode(body).metadata.name == "a"
    assert decoder_for(Named).decode_line(line).object.metadata.name == "a"


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 900, 1100, 9000])
def test_one_such_object_does_not_hide_the_others_of_a_list(levels: int) -> None:
    page = decoder_for(Page).decode(b'{"items":[' + strange(1) + b"," + strange(levels) + b"]}")
    names = [decoder_for(SHAREPODS.shape).decode(item)["metadata"]["name"] for item in page.items]
    assert names == ["a", "a"]


def test_brackets_in_text_are_no_nesting() -> None:
    text = json.dumps({"script": "[" * 5000, "more": '{"' * 5000, "list": [{}] * 500}).encode()
    assert limit_depth(text) == text
