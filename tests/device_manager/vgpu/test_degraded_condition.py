"""When the condition Degraded of a vGPU is written, and what is read before."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from fakes import manifests, objects
from kubeshare.api.types.constants import NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.vgpu.health import VGPUHealth
from kubeshare.kube.clock import utc_now
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import FakeApiServer, run_virtual


def health(**used: object) -> VGPUHealth:
    """Knows of no placeholder and no GPUNode."""
    context = SimpleNamespace(
        **{"client": None, "pool": None} | used,
        informers=SimpleNamespace(gpunodes=SimpleNamespace(store={})),
        placeholders=SimpleNamespace(of=lambda _: None),
        events=None,
        wall_clock=utc_now,
    )
    return VGPUHealth(cast("Context", context))


def test_a_placeholder_that_the_cache_lacks_is_read_before_it_counts_as_lost() -> None:
    server = FakeApiServer()
    name = placeholder_name("x")
    pod = server.seed(PODS, manifests.pod(name, metadata={"namespace": NAMESPACE}))
    spec = VGPUSpec(node_name="n1", uuid="GPU-1", placeholder_uid=pod["metadata"]["uid"])
    vgpu = VGPU(metadata=ObjectMeta(name="x"), spec=spec)
    assert run_virtual(health(client=server.client()).reconcile(vgpu)) is vgpu
    assert [(each.verb, each.path.name) for each in server.requests] == [("get", name)]


def test_a_condition_that_says_so_already_is_not_written_again() -> None:
    lost = (
        f"nothing keeps GPU GPU-1 from other pods: its placeholder {placeholder_name('x')} is gone"
    )
    vgpu = objects.with_degraded(objects.vgpu("x", uuid="GPU-1"), "PlaceholderLost", lost)
    written: list[object] = []

    async def update(_: str, operations: Callable[[VGPU], object]) -> VGPU:
        written.append(operations(vgpu))
        return vgpu

    assert run_virtual(health(pool=SimpleNamespace(update=update)).reconcile(vgpu)) is vgpu
    assert written == [None]
