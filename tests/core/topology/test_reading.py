"""Topologies as people and `nvidia-smi topo -m` write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.topology.topologies import TREES, mesh
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology import Level, Links, check_links, nvlink, read_matrix, read_notation
from kubeshare.core.topology.links import flat, name_of, read_level, without_counts

REAL = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tNODE\tSYS\tPXB\t0-13,28-41\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNODE\tSYS\tPXB\t0-13,28-41\t0\t\tN/A\n"
    "GPU2\tNODE\tNODE\t X \tSYS\tNODE\t0-13,28-41\t0\t\tN/A\n"
    "GPU3\tSYS\tSYS\tSYS\t X \tSYS\t14-27,42-55\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tNODE\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)


def as_text(links: Links, diagonal: str = "X") -> str:
    """What `nvidia-smi topo -m` would print."""
    names = [f"GPU{number}" for number in range(len(links))]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity"]
    for name, row in zip(names, links, strict=True):
        words = [diagonal if level == 0 else name_of(level) for level in row]
        lines.append("\t".join([name, *words, "0-7"]))
    return "\n".join(lines)


def test_a_tree_is_read_from_brackets() -> None:
    assert read_notation("SOC(PHB(PIX(0,1),2),3)", "topology") == (
        (0, Level.PIX, Level.PHB, Level.SYS),
        (Level.PIX, 0, Level.PHB, Level.SYS),
        (Level.PHB, Level.PHB, 0, Level.SYS),
        (Level.SYS, Level.SYS, Level.SYS, 0),
    )


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("SYS(PIX(0..3), PIX( 4..6 ,7))", "SOC(PIX(0,1,2,3),PIX(4,5,6,7))"),
        ("PIX(PIX(0,1),2)", "PIX(0..2)"),
        ("NV1(1,0)", "NVLINK(0,1)"),
        ("NV12(NV12(1,0),2)", "NV12(0..2)"),
        ("SYS(0)", "0"),
    ],
)
def test_the_same_tree_may_be_written_in_several_ways(text: str, same: str) -> None:
    assert read_notation(text, "topology") == read_notation(same, "topology")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("PIX(0,0)", "names GPU 0 twice"),
        ("PIX(0..2,1)", "names GPU 1 twice"),
        ("PIX(0,2)", "names 2 GPUs, and GPU 1 is not among them"),
        ("1", "names 1 GPUs, and GPU 0 is not among them"),
        ("PIX(SOC(0,1),2)", "SOC is inside PIX, which is nearer"),
        ("NV2(NV1(0,1),2)", "NV1 is inside NV2, which is nearer"),
        ("FAR(0,1)", "FAR is not a level; these are: NVLINK, PIX, PXB, PHB, NODE, SYS"),
        ("PIX(0,1", "ends before its brackets do"),
        ("PIX(0,1),2", 'goes on after its end: ",2"'),
        ("0,1", 'goes on after its end: ",1"'),
        ("0..1", "several GPUs need a level around them"),
        ("PIX()", r'expected a group or a GPU at ")"'),
        ("PIX(0,,1)", 'expected a group or a GPU at ",1)"'),
        ("PIX(0 1)", r'expected "," or ")" at " 1)"'),
        ("PIX(0;1)", r'expected "," or ")" at ";1)"'),
        ("PIX(0,1...2)", '"1...2" is not a GPU such as 0, or several such as 0..3'),
        ("PIX(0,3..1)", '"3..1" is not within 0..63'),
        ("PIX(0..64)", '"0..64" is not within 0..63'),
        ("PIX(0)" + "0123456789" * 3, 'goes on after its end: "01234567890123456789"'),
        ("PIX(0" + "/123456789" * 3, r'expected "," or ")" at "/123456789/123456789"'),
        ("(" * 5000, "is longer than 4096 characters"),
    ],
)
def test_brackets_that_are_no_tree_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        read_notation(text, "topology")
    assert refused.value.field == "topology"
    assert refused.value.message == why


def test_the_text_of_nvidia_smi_is_read_for_all_it_has_around_the_gpus() -> None:
    nv, node, far = nvlink(12), Level.NODE, Level.SYS
    assert read_matrix(REAL, "topoMatrix") == (
        (0, nv, node, far),
        (nv, 0, node, far),
        (node, node, 0, far),
        (far, far, far, 0),
    )


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("diagonal", ["x", "X"])
def test_a_tree_reads_back_from_the_text_that_nvidia_smi_prints(name: str, diagonal: str) -> None:
    assert read_matrix(as_text(TREES[name], diagonal), "topoMatrix") == TREES[name]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("GPU", "CARD"), "no line begins with GPU0: this is not `nvidia-smi topo -m`"),
        (
            ("GPU1\tNV12\t X \tNODE", "GPU1\tNV12\t X \tPIX"),
            "is not symmetric: GPU 1 to GPU 2 is PIX, back it is NODE",
        ),
        (("GPU1\tNV12", "GPU1\tWIRE"), 'GPU1 to GPU0: "WIRE" is not a level'),
        (("GPU1\tNV12\t X ", "GPU1\tNV12\tPIX"), "GPU 1 to GPU 1 cannot be PIX"),
        (
            ("GPU0\t X \tNV12", "GPU0\t X \tX"),
            "is not symmetric: GPU 0 to GPU 1 is X, back it is NV12",
        ),
        (("GPU3\tNIC0", "NIC1\tNIC0"), "GPU3 has a line, but no column"),
        (("GPU3\tSYS", "NIC3\tSYS"), "GPU3 has a column, but no line"),
        (("GPU3\tNIC0", "GPU2\tNIC0"), "GPU2 has two columns"),
        (("GPU3\tSYS", "GPU2\tSYS"), "GPU2 has two lines"),
        (
            ("\tPXB\t0-13,28-41\t0\t\tN/A\nGPU1", "\nGPU1"),
            "GPU0 has 4 links, and there are 5 columns",
        ),
        (("GPU3", "GPU7"), "GPU3 is not there, and GPU7 is"),
        (("GPU3", "GPU4"), "GPU3 is not there, and GPU4 is"),
        (("GPU3", "GPU64"), "names more than 64 GPUs"),
        (("\nGPU", "\nCARD"), "names GPUs, and has no line for any of them"),
        (("Legend", "x" * 2**20), "is longer than 1048576 characters"),
    ],
)
def test_a_matrix_that_is_none_is_refused_with_the_reason(
    change: tuple[str, str], why: str
) -> None:
    with pytest.raises(InvalidValueError, match=r"^topoMatrix: ") as refused:
        read_matrix(REAL.replace(*change), "topoMatrix")
    assert refused.value.message == why


def test_other_devices_may_stand_between_the_gpus() -> None:
    text = (
        "\tGPU0\tNIC0\tGPU1\tNUMA Affinity\n"
        "GPU0\tX\tSYS\tPIX\t0\n"
        "NIC0\tSYS\tX\tSYS\n"
        "GPU1\tPIX\tSYS\tX\t0\n"
    )
    assert read_matrix(text, "topoMatrix") == ((0, Level.PIX), (Level.PIX, 0))


def test_as_many_gpus_and_characters_as_may_be_are_read() -> None:
    links = flat(64)
    assert check_links(links, "links") == links
    text = as_text(links)
    assert read_matrix(text + "\n" + " " * (2**20 - 1 - len(text)), "topoMatrix") == links
    assert read_notation("SYS(0..63" + " " * 4086 + ")", "topology") == links


def test_of_unknown_gpus_each_is_as_far_as_can_be() -> None:
    near, far = Level.SELF, Level.SYS
    assert flat(3) == ((near, far, far), (far, near, far), (far, far, near))


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("SELF", None),
        ("X", None),
        ("pix", None),
        ("NV", None),
        ("NV1234", None),
        ("NV0", None),
        ("NV1", Level.NVLINK),
        ("NV2", Level.NVLINK - 1),
        ("NV18", nvlink(18)),
        ("NV999", nvlink(999)),
        ("NVL", Level.NVLINK),
        ("NVLINK", Level.NVLINK),
        ("SOC", Level.SYS),
        ("SYS", Level.SYS),
        ("PXB", Level.PXB),
    ],
)
def test_a_level_is_known_by_its_word(word: str, level: int | None) -> None:
    assert read_level(word) == level


def test_a_pair_with_more_nvlinks_is_cheaper() -> None:
    levels = [nvlink(999), nvlink(18), nvlink(2), nvlink(1), Level.PIX]
    assert levels == sorted(levels)
    assert [name_of(level) for level in levels] == ["NV999", "NV18", "NV2", "NV1", "PIX"]
    assert all(level > Level.SELF for level in levels)


def test_all_nvlinks_of_a_node_together_are_less_than_a_step_between_levels() -> None:
    pairs = 64 * 63 // 2
    assert without_counts(pairs * nvlink(999)) == pairs
    assert without_counts(nvlink(18) + Level.SYS) == 7


def test_what_paints_and_clears_a_terminal_is_no_part_of_a_matrix() -> None:
    painted = REAL.replace("GPU1", "\x1b[1;32mGPU1\x1b[0m\x1b[K")
    assert read_matrix(painted, "field") == read_matrix(REAL, "field")


@settings(deadline=None)
@given(st.text(alphabet="GPU0123 \t\nXNVSYPIC#\x1b[4m", max_size=80) | st.text(max_size=80))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (read_matrix, read_notation):
        try:
            links = read(text, "field")
        except InvalidValueError:
            continue
        assert check_links(links, "field") == links


@settings(deadline=None)
@given(st.text(alphabet="PIXSOCV0123.(),1 ", max_size=40))
def test_no_brackets_break_the_reader(text: str) -> None:
    try:
        links = read_notation(text, "field")
    except InvalidValueError:
        return
    assert check_links(links, "field") == links


@pytest.mark.parametrize(
    ("links", "why"),
    [
        (((0, Level.PIX), (Level.PIX,)), "GPU 1 has 1 links, not 2"),
        (((0, 9), (9, 0)), "GPU 0 to GPU 1 cannot be 9"),
        (
            ((0, nvlink(1000)), (nvlink(1000), 0)),
            f"GPU 0 to GPU 1 cannot be {nvlink(1000)}",
        ),
        (((0, 0), (0, 0)), "GPU 0 to GPU 1 cannot be X"),
        (mesh(65, []), "names 65 GPUs, more than 64"),
    ],
)
def test_a_matrix_of_numbers_is_checked_too(links: Links, why: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        check_links(links, "links")
    assert str(refused.value) == f"links: {why}"
