"""Lists of GPUIDs in one annotation."""

import pytest

from kubeshare.api.gpuid_list import format_list, parse


@pytest.mark.parametrize(
    ("gpuids", "text"),
    [
        (["vgpu-1"], "vgpu-1"),
        (["a", "b"], "a,b"),
        (["GPU 0"], "GPU 0"),
        (["a,b", "c"], '"a,b",c'),
        (['a"b'], '"a""b"'),
        ([" a", ","], ' a,","'),
    ],
)
def test_a_list_is_read_as_it_was_written(gpuids: list[str], text: str) -> None:
    assert format_list(gpuids) == text
    assert parse(text) == tuple(gpuids)


@pytest.mark.parametrize("text", ["", '"' * 3, '"a"\n"b', '"a\rb', "x" * 200_000 + '"'])
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(parse(text), tuple)
