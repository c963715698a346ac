"""Whether a pod still has processes."""

from pathlib import Path

from kubeshare.node.processes import has_processes

UID = "0b3e6c1e-3b1f-4c54-8c53-3a8d4d8f5a11"
OTHER = "5d0c7c1a-9a52-4f4a-9a0f-0c9ad7c1f3e2"


def process(proc: Path, pid: int, cgroup: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(cgroup)


def test_a_process_in_the_cgroup_of_a_pod_is_seen(tmp_path: Path) -> None:
    process(tmp_path, 1, "0::/init.scope\n")
    process(tmp_path, 7, f"0::/kubepods/burstable/pod{UID}/{'a' * 64}\n")
    assert has_processes(UID, tmp_path)
    assert not has_processes(OTHER, tmp_path)


def test_what_is_no_process_or_has_ended_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "cpuinfo").write_text(f"0::/kubepods/pod{UID}/{'a' * 64}\n")
    assert not has_processes(UID, tmp_path)


def test_of_this_machine_no_pod_of_that_uid_is_seen() -> None:
    assert not has_processes(OTHER)
