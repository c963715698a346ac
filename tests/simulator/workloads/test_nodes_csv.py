"""Files of nodes: what is read, and which errors invalid ones get."""

from pathlib import Path

import pytest

from kubeshare.core.units import GI
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.workloads.nodes_csv import read_nodes


def written(folder: Path, text: str) -> Path:
    path = folder / "nodes.csv"
    path.write_text(text)
    return path


def test_nodes_may_differ(tmp_path: Path) -> None:
    text = "name,gpus,model,gpu_memory,cpu,host_memory\na,2,T4,15Gi,4,8Gi\nb,0,,,2.5,4Gi\n"
    first, second = read_nodes(written(tmp_path, text))
    assert (first.name, first.gpus, first.kind.model) == ("a", 2, "T4")
    assert first.kind.memory_bytes == 15 * GI
    assert first.host is not None
    assert (first.host.cpu_millis, first.host.memory_bytes, first.host.model) == (
        4000,
        8 * GI,
        "T4",
    )
    assert second.host is not None
    assert (second.gpus, second.host.cpu_millis) == (0, 2500)


def test_name_and_gpus_are_enough(tmp_path: Path) -> None:
    (node,) = read_nodes(written(tmp_path, "name,gpus\na,2\n"))
    assert (node.kind.model, node.kind.memory_bytes, node.host) == ("", 16 * GI, None)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name\n", ":1: column gpus is missing"),
        ("name,gpus,rack\n", ":1: column 'rack' is not known; these are: name, gpus, model"),
        ("name,gpus\n", ": no node has a GPU"),
        ("name,gpus\na,0\n", ": no node has a GPU"),
        ("name,gpus\na,65\n", ":2: gpus: 65 is more than 64"),
        ("name,gpus\n,1\n", ":2: name: is missing"),
        ("name,gpus\na,1\na,1\n", ": a name of a node occurs twice"),
        ("name,gpus,cpu\na,1,4\n", ":2: give both cpu and host_memory"),
        ("name,gpus,cpu,host_memory\na,1,4,1Gi\nb,1,,\n", "of all nodes, or of none"),
        ("name,gpus,gpu_memory\na,1,much\n", ":2: gpu_memory: "),
    ],
)
def test_an_invalid_file_is_named(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SimulationError) as raised:
        read_nodes(path)
    assert str(raised.value).startswith(str(path))
    assert error in str(raised.value)
