"""Which CPUs are SMT siblings."""

from pathlib import Path

import pytest

from kubeshare.node.cpu.cores import read_cores


def test_the_siblings_of_each_cpu_are_read(tmp_path: Path) -> None:
    texts = {"cpu0": "0,2", "cpu1": "1", "cpu2": "0,2", "cpu3": "none", "cpufreq": "5"}
    for cpu, text in texts.items():
        (tmp_path / cpu / "topology").mkdir(parents=True)
        (tmp_path / cpu / "topology/thread_siblings_list").write_text(f"{text}\n")
    assert read_cores(tmp_path) == {frozenset([0, 2]), frozenset([1])}


@pytest.mark.parametrize("cores", [28, 192])
def test_each_core_of_a_large_machine_is_read_once(tmp_path: Path, cores: int) -> None:
    for cpu in range(2 * cores):
        topology = tmp_path / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % cores},{cpu % cores + cores}\n")
    assert read_cores(tmp_path) == {frozenset([core, core + cores]) for core in range(cores)}


def test_a_machine_that_does_not_say_it_has_none(tmp_path: Path) -> None:
    assert read_cores(tmp_path / "cpu") == set()
