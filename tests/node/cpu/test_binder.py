"""Which CPUs the containers of a node are bound to, on a machine with two sockets.

Each has 14 cores of two threads and one GPU. Each look is by another start of the agent.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, FixedGpus
from kubeshare.core.topology.cpus import read_cpu_list
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.cpu.binder import CHECK_SECONDS, CpuBinder
from node.cpu.machine import Machine

NEAR_A, NEAR_OTHER = "0-13,28-41", "14-27,42-55"
NOT_BOUND = "container main is not bound to the CPUs near its GPUs"
A, OTHER = A_GPU.uuid, OTHER_GPU.uuid
UNKNOWN = "GPU-00000000-0000-0000-0000-00000000ffff"


@pytest.fixture
def gpus() -> FixedGpus:
    near = {A_GPU: NEAR_A, OTHER_GPU: NEAR_OTHER}
    return FixedGpus(
        tuple(msgspec.structs.replace(gpu, cpu_list=cpus) for gpu, cpus in near.items())
    )


@pytest.mark.parametrize("version", [1, 2])
def test_each_container_is_bound_to_the_cpus_near_its_own_gpus(
    machine: Machine, version: int
) -> None:
    if version == 1:
        machine.use_version_1()
    machine.add("one", {"main": [A], "side": []})
    machine.add("two", {"left": [A], "right": [OTHER]})
    machine.add("both", {"main": [A, OTHER]})
    everything = "0-55" if version == 1 else ""
    expected = {
        "one/main": NEAR_A,
        "one/side": everything,
        "two/left": NEAR_A,
        "two/right": NEAR_OTHER,
        "both/main": everything,
    }
    assert machine.look() == RequeueAfter(CHECK_SECONDS)
    assert machine.cpus() == expected
    assert machine.metrics == {
        f"default/one/main {NEAR_A}": 28,
        f"default/two/left {NEAR_A}": 28,
        f"default/two/right {NEAR_OTHER}": 28,
    }
    machine.look()
    assert machine.cpus() == expected
    assert machine.events() == []


def test_a_process_that_has_ended_hides_no_other_of_its_container(machine: Machine) -> None:
    machine.add("a", {"main": [A]})
    processes = machine.folder("a/main") / "cgroup.procs"
    processes.write_text("7\n" + processes.read_text())
    machine.look()
    assert machine.cpus() == {"a/main": NEAR_A}


def test_a_container_with_a_gpu_that_the_node_does_not_know_is_not_bound(machine: Machine) -> None:
    machine.add("a", {"main": [A, UNKNOWN]})
    machine.add("b", {"main": [A]})
    machine.look()
    assert machine.cpus() == {"a/main": "", "b/main": NEAR_A}


def test_with_a_number_each_container_has_cores_of_its_own(machine: Machine) -> None:
    machine.default = 2
    for name in "abc":
        machine.add(name, {"main": [A]})
    machine.add("d", {"main": [OTHER]}, cores="1")
    machine.add("e", {"main": [OTHER]}, cores="none")
    machine.add("f", {"main": [OTHER]}, cores="all")
    machine.look()
    assert machine.cpus() == {
        "a/main": "0-1,28-29", "b/main": "2-3,30-31", "c/main": "4-5,32-33",
        "d/main": "14,42", "e/main": "", "f/main": NEAR_OTHER,
    }  # fmt: skip


def test_cores_of_a_container_that_ended_go_to_the_next_and_nobody_moves(machine: Machine) -> None:
    machine.default = 5
    for name in "abc":
        machine.add(name, {"main": [A]})
    machine.look()
    before = machine.cpus()
    # Fourteen cores are near: the third shares one of them.
    assert before["a/main"] == "0-4,28-32"
    assert before["b/main"] == "5-9,33-37"
    machine.end("a/main")
    machine.look()
    after = machine.cpus()
    assert after["b/main"] == before["b/main"]
    assert not cpus(after["b/main"]) & cpus(after["c/main"])
    machine.add("d", {"main": [A]})
    machine.look()
    assert {name: machine.cpus()[name] for name in after} == after


def cpus(text: str) -> frozenset[int]:
    return read_cpu_list(text, "cpus")


def test_another_number_of_cores_takes_effect_on_running_containers(machine: Machine) -> None:
    machine.add("a", {"main": [A]}, cores="3")
    machine.look()
    assert machine.cpus() == {"a/main": "0-2,28-30"}
    machine.annotate("a", "1")
    machine.look()
    assert machine.cpus() == {"a/main": "0,28"}
    machine.annotate("a", "several")
    machine.look()
    assert machine.cpus() == {"a/main": NEAR_A}
    machine.default = "none"
    machine.look()
    assert machine.cpus() == {"a/main": ""}
    assert machine.metrics == {}


def test_a_container_whose_grant_is_revoked_is_released(machine: Machine) -> None:
    machine.add("a", {"main": [A]})
    machine.look()
    machine.revoke("a.main")
    assert machine.look() == RequeueAfter(CHECK_SECONDS)
    assert machine.cpus() == {"a/main": ""}
    assert machine.look() is None


def test_the_containers_of_another_node_of_the_machine_are_not_touched(machine: Machine) -> None:
    machine.add("a", {"main": [A]})
    machine.look()
    machine.server.remove(PODS, "a", "default")
    assert machine.look() is None
    assert machine.cpus() == {"a/main": NEAR_A}


@pytest.mark.parametrize("cpu_list", ["", "nonsense", "0-55"])
def test_gpus_near_all_cpus_or_at_an_unknown_place_change_nothing(
    machine: Machine, gpus: FixedGpus, cpu_list: str
) -> None:
    near = (msgspec.structs.replace(gpu, cpu_list=cpu_list) for gpu in gpus.devices)
    gpus.devices = tuple(near)
    machine.exclusive = None  # the kubelet is not asked
    machine.add("a", {"main": [A]})
    machine.look()
    assert machine.cpus() == {"a/main": ""}


def test_a_container_that_has_not_started_is_left_for_later(machine: Machine) -> None:
    machine.add("a", {"main": [A]}, runs=False)
    assert machine.look() is None
    assert machine.events() == []


def test_a_mounted_grant_of_another_pod_gives_no_cpus(machine: Machine) -> None:
    machine.add("a", {"main": [A]}, runs=False)
    machine.add("b", {"main": [OTHER]})
    machine.mounted[2000] = ("a.main",)
    machine.look()
    assert machine.cpus() == {"b/main": ""}


def test_before_the_gpus_were_read_nothing_changes(machine: Machine) -> None:
    machine.add("a", {"main": [A]})

    async def act(agent: Agent, binder: CpuBinder) -> None:
        agent.inventory.first_reading.clear()
        assert await binder.reconcile(NODE) is None

    machine.run(act)
    assert machine.cpus() == {"a/main": ""}


def test_where_the_kubelet_binds_containers_nothing_changes_and_the_node_says_so(
    machine: Machine,
) -> None:
    machine.exclusive = {1, 2}
    machine.add("a", {"main": [A]})
    machine.add("b", {"main": [A]})
    machine.cgroups.set(machine.folder("b/main"), "3")
    assert machine.look(times=2) == RequeueAfter(CHECK_SECONDS)
    assert machine.cpus() == {"a/main": "", "b/main": "3"}
    [(name, note)] = machine.events()
    assert name == NODE
    assert "the kubelet's CPU manager binds containers on this node" in note


def test_while_the_kubelet_does_not_answer_nothing_changes(machine: Machine) -> None:
    machine.exclusive = None
    machine.add("a", {"main": [A]})
    assert machine.look() == RequeueAfter(CHECK_SECONDS)
    assert machine.cpus() == {"a/main": ""}
    machine.exclusive = set()
    machine.look()
    assert machine.cpus() == {"a/main": NEAR_A}


def test_a_container_that_another_program_has_bound_stays_so_and_its_pod_says_it_once(
    machine: Machine,
) -> None:
    machine.default = 14
    machine.add("a", {"main": [A]})
    machine.add("b", {"main": [A]})
    machine.cgroups.set(machine.folder("a/main"), "20-21")
    machine.look(times=3)
    assert machine.cpus() == {"a/main": "20-21", "b/main": NEAR_A}
    note = f"{NOT_BOUND}: another program has bound it to the CPUs 20-21"
    assert machine.events() == [("a", note)]
    assert list(machine.metrics) == [f"default/b/main {NEAR_A}"]


def test_a_container_whose_cpu_request_does_not_fit_near_its_gpu_may_use_all_cpus(
    machine: Machine,
) -> None:
    machine.add("a", {"main": [A]}, cpu="20")
    machine.add("b", {"main": [A]}, cpu="8500m")
    machine.add("c", {"main": [A]}, cpu="8")
    machine.look()
    assert machine.cpus() == {"a/main": NEAR_A, "b/main": "", "c/main": NEAR_A}
    room = f"the CPUs {NEAR_A} have no room for its CPU request beside those of other containers"
    assert machine.events() == [("b", f"{NOT_BOUND}: {room}")]
    assert [each["reason"] for each in machine.server.all(EVENTS)] == ["CPUsNotBound"]


def test_what_the_kernel_refuses_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add("a", {"main": [A]})
    machine.add("b", {"main": [A]})
    written = Path.write_text

    def refuse(file: Path, text: str) -> int:
        if file.parent == machine.folder("a/main"):
            raise OSError(16, "Device or resource busy")
        return written(file, text)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", refuse)
        machine.look()
    assert machine.cpus() == {"a/main": "", "b/main": NEAR_A}
    [(name, note)] = machine.events()
    assert (name, note.rpartition(": ")[2]) == ("a", "[Errno 16] Device or resource busy")
    machine.look()
    assert machine.cpus() == {"a/main": NEAR_A, "b/main": NEAR_A}


def test_a_container_that_ends_meanwhile_is_no_trouble(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add("a", {"main": [A]})

    def ended(*_: Any) -> int:
        raise OSError(19, "No such device")

    monkeypatch.setattr(Path, "write_text", ended)
    machine.look()
    assert machine.events() == []


def test_the_controller_looks_when_a_pod_with_grants_changes(machine: Machine) -> None:
    machine.add("a", {"main": [A]})
    machine.add("b", {"main": []})

    async def act(agent: Agent, binder: CpuBinder) -> None:
        worker = asyncio.create_task(binder.controller.run())
        agent_gpus = asyncio.create_task(agent.inventory.reflector.run())
        binder.controller.queue.add(NODE)
        await asyncio.sleep(1)
        counts = [sum(binder.controller.results.values())]
        for pod in "ba":
            machine.annotate(pod, "1")
            await asyncio.sleep(1)
            counts.append(sum(binder.controller.results.values()))
        await asyncio.sleep(CHECK_SECONDS)
        counts.append(sum(binder.controller.results.values()))
        assert [count - counts[0] for count in counts] == [0, 0, 1, 2]
        for task in (worker, agent_gpus):
            task.cancel()
        await asyncio.gather(worker, agent_gpus, return_exceptions=True)

    machine.run(act)
    assert machine.cpus()["a/main"] == "0,28"
