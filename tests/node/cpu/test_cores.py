"""Which CPUs are SMT siblings."""

from pathlib import Path

from kubeshare.node.cpu.cores import read_cores


def test_the_siblings_of_each_cpu_are_read(tmp_path: Path) -> None:
    texts = {"cpu0": "0,2", "cpu1": "1", "cpu2": "0,2", "cpu3": "none", "cpufreq": "5"}
    for cpu, text in texts.items():
        (tmp_path / cpu / "topology").mkdir(parents=True)
        (tmp_path / cpu / "topology/thread_siblings_list").write_text(f"{text}\n")
    assert read_cores(tmp_path) == {frozenset([0, 2]), frozenset([1])}


def test_a_machine_that_does_not_say_it_has_none(tmp_path: Path) -> None:
    assert read_cores(tmp_path / "cpu") == set()
