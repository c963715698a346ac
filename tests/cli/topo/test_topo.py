"""What `kubeshare topo` shows of a node."""

import json
import xml.etree.ElementTree as ET

import pytest

from kubeshare.api.topology.drawings import matrix_text, svg
from kubeshare.api.topology.fields import as_fields
from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.topology.tree_text import tree_text
from kubeshare.api.types.v1 import GPUNODES, GPUDevice, GPULink, GPUNodeSpec
from kubeshare.cli.topo import NoTopologyError, read
from kubeshare.core.topology.links import name_of
from kubeshare.core.topology.notation import read_notation
from kubeshare.core.topology.nvidia_smi import read_matrix
from kubeshare.core.units import GI
from kubeshare.simulator.control import FakeApiServer, run_virtual


def gpu(index: int, **more: object) -> GPUDevice:
    known = {"uuid": f"GPU-{index}", "model": "P4", "memory_bytes": 8 * GI, "minor": index}
    return GPUDevice(index=index, **(known | more))  # type: ignore[arg-type]


def a_node(notation: str, *gpus: GPUDevice) -> NodeTopology:
    """The GPUs with the links of a tree in bracket notation."""
    levels = read_notation(notation, "tree")
    links = tuple(
        GPULink(a=a, b=b, link=name_of(levels[a][b])) for b in range(len(levels)) for a in range(b)
    )
    devices = gpus or tuple(map(gpu, range(len(levels))))
    return NodeTopology("n1", GPUNodeSpec(devices=devices, links=links))


PAPER = "SYS(PXB(0,1),PIX(2,3))"


def test_the_tree_has_a_line_for_each_group_and_gpu() -> None:
    assert tree_text(a_node("SYS(PHB(PIX(0,1),2),3)")).splitlines() == [
        "SYS",
        "├── PHB",
        "│   ├── PIX",
        "│   │   ├── GPU0  P4  8Gi  GPU-0",
        "│   │   └── GPU1  P4  8Gi  GPU-1",
        "│   └── GPU2  P4  8Gi  GPU-2",
        "└── GPU3  P4  8Gi  GPU-3",
    ]


def test_groups_are_in_the_order_of_their_first_gpu() -> None:
    drawn = tree_text(a_node("SYS(NV2(1,2),PIX(0,3))"))
    assert [line.split()[-1] for line in drawn.splitlines()] == [
        *("SYS", "PIX", "GPU-0", "GPU-3"),
        *("NV2", "GPU-1", "GPU-2"),
    ]


def test_the_matrix_is_that_of_nvidia_smi() -> None:
    near = gpu(0, numa_node=0, cpu_list="0-13,28-41")
    assert matrix_text(a_node("NV4(0,1)", near, gpu(1))).splitlines() == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tNV4\t0-13,28-41\t0",
        "GPU1\tNV4\t X \tN/A\tN/A",
    ]


@pytest.mark.parametrize("notation", [PAPER, "SYS(NODE(NV2(0,1),NV1(2,3)),PIX(4..7))", "PIX(0,1)"])
def test_the_matrix_is_read_back(notation: str) -> None:
    assert read_matrix(matrix_text(a_node(notation)), "text") == read_notation(notation, "tree")


def test_a_gpu_that_is_not_healthy_says_why() -> None:
    lost = gpu(1, healthy=False, message="the driver lists it no more")
    drawn = tree_text(a_node("PIX(0,1)", gpu(0), lost))
    assert drawn.splitlines()[-1].endswith("unhealthy: the driver lists it no more")


def test_a_gpu_whose_index_another_one_has_is_in_no_tree() -> None:
    gone = gpu(0, uuid="GPU-gone", healthy=False)
    fields = as_fields(a_node(PAPER, gone, *map(gpu, range(4))))
    assert [each["uuid"] for each in fields["gpus"]] == [f"GPU-{index}" for index in range(4)]
    assert [each["uuid"] for each in fields["vanished"]] == ["GPU-gone"]


def test_an_index_that_no_gpu_has_is_left_out() -> None:
    found = a_node(PAPER, gpu(0), gpu(2), gpu(3))
    assert found.levels == [["X", "SYS", "SYS"], ["SYS", "X", "PIX"], ["SYS", "PIX", "X"]]
    assert "GPU1" not in tree_text(found)


def test_without_links_the_gpus_are_as_far_apart_as_possible() -> None:
    found = NodeTopology("n1", GPUNodeSpec(devices=(gpu(0), gpu(1))))
    assert tree_text(found).splitlines()[0] == "SYS"


def test_one_gpu_is_a_tree_of_its_own() -> None:
    found = NodeTopology("n1", GPUNodeSpec(devices=(gpu(0),)))
    assert tree_text(found) == "GPU0  P4  8Gi  GPU-0"
    assert as_fields(found)["tree"] is None
    ET.fromstring(svg(found))


def test_the_fields_are_for_programs() -> None:
    fields = json.loads(json.dumps(as_fields(a_node(PAPER))))
    assert fields["node"] == "n1"
    assert fields["tree"] == {
        "level": "SYS",
        "groups": [
            {"level": "PIX", "groups": [], "gpus": [2, 3]},
            {"level": "PXB", "groups": [], "gpus": [0, 1]},
        ],
        "gpus": [],
    }
    assert fields["links"][0] == ["X", "PXB", "SYS", "SYS"]
    assert (fields["gpus"][0]["memoryBytes"], fields["gpus"][0]["numaNode"]) == (8 * GI, -1)


def test_the_image_has_each_gpu_and_group_and_a_line_to_each_but_the_root() -> None:
    image = ET.fromstring(
        svg(a_node("SYS(PHB(PIX(0,1),2),3)", gpu(0, model="<&>"), *map(gpu, (1, 2, 3))))
    )
    tags = [element.tag.rpartition("}")[2] for element in image]
    assert (tags.count("rect"), tags.count("line")) == (7, 6)
    texts = [element.text or "" for element in image if element.tag.endswith("text")]
    assert sorted(texts) == sorted(
        ["SYS", "PHB", "PIX", "GPU0", "<&>", *("GPU1", "GPU2", "GPU3"), *["P4"] * 3]
    )


def test_the_image_has_the_gpus_in_the_order_of_the_text() -> None:
    node = a_node("SYS(PXB(0,3),1,PIX(2,4))")
    drawn = [word for word in tree_text(node).split() if word.startswith("GPU") and "-" not in word]
    boxes = [each for each in ET.fromstring(svg(node)) if each.tag.endswith("text")]
    placed = {each.text or "": float(each.attrib["x"]) for each in boxes}
    assert drawn == sorted(drawn, key=lambda name: placed[name])


def test_a_node_of_the_cluster_is_read() -> None:
    server = FakeApiServer()
    devices = [{"uuid": "GPU-0", "index": 0}, {"uuid": "GPU-1", "index": 1}]
    links = [{"a": 0, "b": 1, "link": "NV2"}]
    for name, found in (("n1", devices), ("empty", [])):
        spec = {"devices": found, "links": links}
        server.seed(GPUNODES, {"metadata": {"name": name}, "spec": spec})

    async def ask(node: str) -> NodeTopology:
        async with server.client("kubeshare") as client:
            return await read(client, node)

    assert run_virtual(ask("n1")).levels == [["X", "NV2"], ["NV2", "X"]]
    for node, words in (("empty", "has no GPUs"), ("other", "no node agent runs there")):
        with pytest.raises(NoTopologyError, match=words):
            run_virtual(ask(node))
