"""The list of names is read as its head says, and what is made of it can be looked up."""

import os
from itertools import groupby
from pathlib import Path

import pytest
from driver_api import generate, rows
from driver_api.rows import GENERATED, ListError, Row


def read(tmp_path: Path, text: str) -> list[Row]:
    path = tmp_path / "names.list"
    path.write_text(text)
    return rows.read(path)


def test_a_row_says_what_it_is(tmp_path: Path) -> None:
    text = """
# a comment
[launch]
cuLaunchAll_v2        9000  gate     generated
    (CUfunction function, void **parameters,
     CUstream stream)
cuLaunchAll_v2_ptsz   9010  gate     generated
[query]
nvmlDeviceGetHeat_v2     -  pass
"""
    launch, twin, heat = read(tmp_path, text)
    parameters = "(CUfunction function, void **parameters, CUstream stream)"
    assert launch == Row("cuLaunchAll_v2", 9000, "launch", "gate", GENERATED, parameters)
    assert (launch.base, launch.is_twin, launch.is_nvml) == ("cuLaunchAll", False, False)
    assert launch.arguments == "(function, parameters, stream)"
    assert (twin.base, twin.is_twin, twin.parameters) == ("cuLaunchAll", True, parameters)
    assert (heat.base, heat.since, heat.is_nvml) == ("nvmlDeviceGetHeat_v2", 0, True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[nonsense]", "line 1: [nonsense] is no section"),
        ("cuInit 2000 pass", "line 1: a row stands in a section"),
        ("[other]\ncuInit", "line 2: a row is: symbol, since, rule"),
        ("[other]\ncuInit 2000 maybe", "line 2: maybe is no rule"),
        ("[other]\ncuInit - pass", "line 2: a name of the driver has a version"),
        ("[other]\nnvmlInit 2000 pass", "line 2: a name of the driver has a version"),
        ("[other]\ncuInit 2000 pass init.c", "line 2: what is passed has no body"),
        ("[other]\ncuInit 2000 track generated", "line 2: only the body of a gated function"),
        ("[other]\ncuInit 2000 pass\n    (void)", "line 3: cuInit has parameters and no body"),
        ("[other]\ncuInit 2000 track init.c", "cuInit has a body and no parameters"),
        ("[other]\ncuInit 2000 pass\ncuInit 2000 pass", "cuInit stands there twice"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ListError) as caught:
        read(tmp_path, text)
    assert error in str(caught.value)


def test_each_section_is_in_the_order_of_names() -> None:
    for _, section in groupby(rows.read(), lambda row: row.kind):
        order = [row.order for row in section]
        assert order == sorted(order)


def test_no_search_in_a_hash_table_takes_more_than_a_few_steps() -> None:
    names = [row.symbol for row in generate.table_of(rows.read())]
    table = generate.slots(names)
    steps = []
    for index, name in enumerate(names):
        place = generate.hash_of(name) % len(table)
        count = 1
        while table[place] != index + 1:
            assert table[place] != 0
            place, count = (place + 1) % len(table), count + 1
        steps.append(count)
    assert sum(steps) / len(steps) < 2
    assert max(steps) < 16


def test_all_versions_of_a_hooked_name_are_in_the_table() -> None:
    read_rows = rows.read()
    table = {row.symbol for row in generate.table_of(read_rows)}
    hooked = {row.base for row in read_rows if row.body}
    assert table == {row.symbol for row in read_rows if row.base in hooked}


def test_a_file_whose_text_stays_the_same_is_not_written(tmp_path: Path) -> None:
    generate.main(tmp_path)
    made = {path.name: path for path in tmp_path.iterdir()}
    assert made.keys() == generate.FILES.keys()
    for path in made.values():
        os.utime(path, (1, 1))
    made["exports.txt"].write_text("cuInit\n")
    generate.main(tmp_path)
    written = {name for name, path in made.items() if path.stat().st_mtime > 1}
    assert written == {"exports.txt"}


def test_every_function_that_is_not_passed_on_has_its_hook() -> None:
    lacking = [row.symbol for row in rows.read() if row.rule != "pass" and not row.body]
    assert not lacking, f"say in native/driver_api/names.list which file has the hook of: {lacking}"
