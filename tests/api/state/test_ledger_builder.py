"""The core's ledger, rebuilt from the cluster's objects."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.objects import GIB, gpunode, holder, node, pod, vgpu
from kubeshare.api.state.ledger_builder import build
from kubeshare.api.types import v1
from kubeshare.api.types.core_v1 import (
    Node,
    Pod,
    PodResourceClaim,
    PodSpec,
    PodStatus,
)
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.kube.meta import ObjectMeta


def free(*objects: v1.VGPU | Pod, gpus: int = 2) -> int:
    """How many GPUs of the node are free beside these objects."""
    vgpus = [each for each in objects if isinstance(each, v1.VGPU)]
    pods = [each for each in objects if isinstance(each, Pod)]
    return len(build(vgpus, [gpunode()], [node(gpus=gpus)], pods).nodes["n1"].free)


OBJECTS = (
    vgpu("a", uuid="GPU-n1-0", phase="Active", holders=(holder("x"), holder("y"), holder("z"))),
    vgpu("b", "n2"),
    vgpu("c", "n2", phase="Deleting"),
    vgpu("d", "gone", uuid="GPU-x", phase="Active"),
    gpunode("n1"),
    gpunode("n2", 16, 32),
    node("n1"),
    node("n2"),
    pod("one", placeholder_of="a"),
    pod("two", "n2"),
    pod("three", phase="Failed"),
)


@settings(deadline=None)
@given(st.permutations(OBJECTS))
def test_the_order_of_the_objects_makes_no_difference(shuffled: list[object]) -> None:
    def ledger_of(objects: object) -> object:
        assert isinstance(objects, list | tuple)
        return build(
            [each for each in objects if isinstance(each, v1.VGPU)],
            [each for each in objects if isinstance(each, v1.GPUNode)],
            [each for each in objects if isinstance(each, Node)],
            [each for each in objects if isinstance(each, Pod)],
        )

    assert ledger_of(shuffled) == ledger_of(OBJECTS)


def test_all_gpus_of_a_node_without_pods_are_free() -> None:
    assert free() == 2


def test_a_native_pod_takes_one_until_it_has_ended() -> None:
    assert free(pod("native")) == 1
    assert free(pod("native", phase="Succeeded")) == 2


def test_a_vgpu_takes_one_with_and_without_its_placeholder() -> None:
    assert free(vgpu("a")) == 1
    assert free(vgpu("a"), pod("holder", placeholder_of="a")) == 1
    assert free(vgpu("a"), pod("holder", placeholder_of="a", phase="Failed")) == 1


def test_a_vgpu_that_goes_takes_one_until_its_placeholder_has_gone() -> None:
    assert free(vgpu("a", phase="Deleting"), pod("holder", placeholder_of="a")) == 1
    assert free(vgpu("a", phase="Deleting")) == 2


def test_a_vgpu_whose_gpu_is_not_on_its_node_any_more_takes_none() -> None:
    assert free(vgpu("a", uuid="GPU-n1-0", phase="Active")) == 1
    assert free(vgpu("a", uuid="GPU-of-another-machine", phase="Active")) == 2


def test_what_the_kubelet_does_not_offer_is_not_free() -> None:
    assert free(gpus=0) == 0
    assert free(vgpu("a"), vgpu("b"), vgpu("c")) == 0


def mixed(*in_use: int, driver: str = "", **fields: Any) -> v1.GPUNode:
    """A node with a V100 of 16 GiB, an A100 of 40 GiB and another V100."""
    found = gpunode("n1", 16, 40, 16)
    devices = tuple(
        msgspec.structs.replace(
            gpu,
            model="A100" if gpu.index == 1 else "V100",
            in_use=gpu.index in in_use,
            claim_driver=driver,
        )
        for gpu in found.spec.devices
    )
    spec = msgspec.structs.replace(found.spec, devices=devices, **fields)
    return msgspec.structs.replace(found, spec=spec)


V100, A100 = FreeGpu("V100", 16 * GIB), FreeGpu("A100", 40 * GIB)


def test_gpus_that_no_pod_uses_are_free_as_what_they_are() -> None:
    ledger = build([], [mixed()], [node(gpus=3)], [])
    assert ledger.nodes["n1"].free == (A100, V100, V100)


def test_the_gpu_that_a_pod_uses_is_known_from_the_agent() -> None:
    ledger = build([], [mixed(1)], [node(gpus=3)], [pod("native")])
    assert ledger.nodes["n1"].free == (V100, V100)


def test_while_the_gpu_of_a_pod_is_not_known_each_free_one_counts_as_the_smallest() -> None:
    ledger = build([], [mixed()], [node(gpus=3)], [pod("native")])
    assert ledger.nodes["n1"].free == (FreeGpu("", 16 * GIB),) * 2
    ledger = build([], [gpunode("n1", 32, 16)], [node()], [pod("native")])
    assert ledger.nodes["n1"].free == (FreeGpu("V100", 16 * GIB),)


def test_a_vgpu_without_a_gpu_will_get_one_of_its_kind() -> None:
    waiting = v1.VGPU(
        metadata=ObjectMeta(name="a"),
        spec=v1.VGPUSpec(node_name="n1", model="A100", memory_bytes=40 * GIB),
    )
    ledger = build([waiting], [mixed()], [node(gpus=3)], [])
    assert ledger.nodes["n1"].free == (V100, V100)


def test_gpus_of_nvidias_dra_driver_can_be_selected() -> None:
    by_claims = mixed(0, driver="gpu.nvidia.com", dra_count=3)
    entry = build([], [by_claims], [node(gpus=0)], [pod("native")]).nodes["n1"]
    assert [gpu.uuid for gpu in entry.selectable] == ["GPU-n1-1", "GPU-n1-2"]
    assert entry.free == (A100, V100)
    # The plugin of a node that has both drivers chooses, and of another driver nothing is known.
    assert not build([], [by_claims], [node(gpus=3)], []).nodes["n1"].selectable
    other = mixed(driver="gpu.example", dra_count=3)
    assert not build([], [other], [node(gpus=0)], []).nodes["n1"].selectable


def test_of_gpus_that_can_be_selected_the_first_is_left_to_a_pod_that_is_not_reported() -> None:
    by_claims = mixed(driver="gpu.nvidia.com", dra_count=3)
    entry = build([], [by_claims], [node(gpus=0)], [pod("native")]).nodes["n1"]
    assert [gpu.uuid for gpu in entry.selectable] == ["GPU-n1-1", "GPU-n1-2"]
    entry = build([], [by_claims], [node(gpus=0)], [pod(f"p{n}") for n in range(3)]).nodes["n1"]
    assert (entry.free, entry.selectable) == ((), ())


def test_a_selected_gpu_is_not_free_and_its_vgpu_has_its_place() -> None:
    selected = v1.VGPU(
        metadata=ObjectMeta(name="a"),
        spec=v1.VGPUSpec(
            node_name="n1", selected_uuid="GPU-n1-1", model="A100", memory_bytes=40 * GIB
        ),
    )
    by_claims = mixed(driver="gpu.nvidia.com", dra_count=3)
    ledger = build([selected], [by_claims], [node(gpus=0)], [])
    assert ledger.nodes["n1"].free == (V100, V100)
    assert ledger.devices["a"].uuid == "GPU-n1-1"
    assert not ledger.devices["a"].fenced
    placeholder = msgspec.structs.replace(
        pod("holder", placeholder_of="a"),
        spec=PodSpec(node_name="n1", resource_claims=(PodResourceClaim("gpu"),)),
    )
    assert placeholder.whole_gpus == 1
    assert build([selected], [by_claims], [node(gpus=0)], [placeholder]) == ledger


def test_a_gpu_that_is_unhealthy_or_in_a_vgpu_is_not_the_one_that_comes() -> None:
    ledger = build([], [gpunode("n1", 16, 32, unhealthy=(0,))], [node()], [])
    assert ledger.nodes["n1"].free == (FreeGpu("V100", 32 * GIB),)
    used = vgpu("a", uuid="GPU-n1-0", phase="Active")
    ledger = build([used], [gpunode("n1", 16, 32)], [node()], [pod("holder", placeholder_of="a")])
    assert ledger.nodes["n1"].free == (FreeGpu("V100", 32 * GIB),)


def test_a_vgpu_is_fenced_when_nothing_keeps_its_gpu_or_it_goes() -> None:
    known = vgpu("a", uuid="GPU-n1-0", phase="Active")
    kept = build([known], [gpunode()], [node()], [pod("holder", placeholder_of="a")])
    assert not kept.devices["a"].fenced
    assert build([known], [gpunode()], [node()], []).devices["a"].fenced
    leaving = msgspec.structs.replace(
        pod("holder", placeholder_of="a"),
        metadata=msgspec.structs.replace(
            pod("holder", placeholder_of="a").metadata, deletion_timestamp="2026-01-01T00:00:00Z"
        ),
    )
    assert build([known], [gpunode()], [node()], [leaving]).devices["a"].fenced
    going = vgpu("a", phase="Deleting")
    assert build([going], [gpunode()], [node()], []).devices["a"].fenced
    assert not build([vgpu("a")], [gpunode()], [node()], []).devices["a"].fenced


def test_a_static_vgpu_is_fenced_unless_its_node_is_owned_and_accepts_holders() -> None:
    static = vgpu("a", uuid="GPU-n1-0", phase="Idle", pool="static")

    def fenced(found: v1.GPUNode, each: v1.VGPU = static) -> bool:
        return build([each], [found], [node(gpus=0)], []).devices["a"].fenced

    assert not fenced(gpunode(owned="True"))
    assert fenced(gpunode(owned="False"))
    assert fenced(gpunode())
    assert fenced(gpunode(owned="True"), vgpu("a", uuid="GPU-n1-0", phase="Deleting"))
    assert build([static], [], [node()], []).devices["a"].fenced


def test_an_owned_node_has_no_free_gpus_and_none_for_placeholders() -> None:
    for offered in (0, 2):
        ledger = build([vgpu("a")], [gpunode(owned="True")], [node(gpus=offered)], [])
        assert ledger.nodes["n1"].free == ()
        assert ledger.devices["a"].fenced


def test_a_static_vgpu_takes_no_gpu_that_kubernetes_offers() -> None:
    static = vgpu("a", uuid="GPU-n1-0", phase="Idle", pool="static")
    assert free(static, gpus=1) == 1


def test_somebody_elses_pod_with_our_labels_keeps_no_gpu() -> None:
    known = vgpu("a", uuid="GPU-n1-0", phase="Active")
    labels = {"kubeshare.nthu/role": "placeholder", "kubeshare.nthu/vgpu": "a"}
    forged = Pod(
        metadata=ObjectMeta(name="x", namespace="theirs", labels=labels),
        spec=PodSpec(node_name="n1"),
        status=PodStatus(phase="Running"),
    )
    assert build([known], [gpunode()], [node()], [forged]).devices["a"].fenced


def test_a_gpu_is_as_healthy_as_its_node_says() -> None:
    known = vgpu("a", uuid="GPU-n1-0", phase="Active")
    assert build([known], [gpunode()], [node()], []).devices["a"].healthy
    assert not build([known], [gpunode(unhealthy=(0,))], [node()], []).devices["a"].healthy
    assert not build([known], [], [node()], []).devices["a"].healthy


def test_a_vgpu_that_is_promised_twice_takes_nobody_and_stops_nobody_else() -> None:
    twice = v1.VGPU(
        metadata=ObjectMeta(name="a"),
        spec=v1.VGPUSpec(node_name="n1", memory_bytes=GIB),
        status=v1.VGPUStatus(holders=(v1.Holder(demand="x", memory_bytes=2 * GIB),)),
    )
    ledger = build([twice, vgpu("b")], [gpunode()], [node()], [])
    assert ledger.devices["a"].fenced
    assert not ledger.devices["b"].fenced
