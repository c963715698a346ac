"""The same GPUs for the same cluster, in whatever order its objects and GPUs are listed (C51)."""

import random
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

import samples
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.doors import DOORS, begin, link_six, place
from fakes.cluster.predicates import placed
from fakes.cluster.vcuda import published
from fakes.objects import gpunode, holder, node, vgpu
from kubeshare.api.state.ledger_builder import build
from kubeshare.api.types import v1
from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.core.demand import Demand
from kubeshare.core.policies import policy
from kubeshare.core.units import MICROS, Memory
from kubeshare.dialects.vcuda import BLOCK
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX

TIMES = samples.count(whole=1000, sample=200)
LINKS = (v1.GPULink(a=0, b=1, link="PXB"), v1.GPULink(a=2, b=3, link="PIX"))
SHARE = Demand(
    uid="p", name="p", request_micros=400_000, limit_micros=400_000, memory=Memory(bytes=4 * BLOCK)
)
WHOLE = Demand(
    uid="p", name="p", request_micros=MICROS, limit_micros=MICROS, memory=Memory(micros=MICROS)
)
DEMANDS = {
    "a share": SHARE,
    "a whole GPU": WHOLE,
    "two GPUs": msgspec.structs.replace(WHOLE, count=2),
    "three GPUs": msgspec.structs.replace(WHOLE, count=3),
}


def shuffled(draw: random.Random, names: Sequence[str]) -> tuple[list[v1.VGPU], list[v1.GPUNode]]:
    """Three nodes of four GPUs with a share on one; device files are numbered at random."""
    vgpus, gpunodes = [], []
    for name in names:
        found = gpunode(name, 16, 16, 16, 16, owned="True")
        minors = draw.sample(range(4), 4)
        devices = [
            msgspec.structs.replace(gpu, minor=minor)
            for gpu, minor in zip(found.spec.devices, minors, strict=True)
        ]
        vgpus += [
            vgpu(
                gpu.uuid.lower(),
                name,
                gpu.uuid,
                phase="Active",
                pool="static",
                holders=(holder("x"),) if (name, gpu.index) == ("n2", 2) else (),
            )
            for gpu in devices
        ]
        draw.shuffle(devices)
        spec = msgspec.structs.replace(
            found.spec, devices=tuple(devices), links=tuple(draw.sample(LINKS, 2))
        )
        gpunodes.append(msgspec.structs.replace(found, spec=spec))
    draw.shuffle(vgpus)
    return vgpus, gpunodes


@pytest.mark.sampled
@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
def test_the_uuids_of_a_decision_do_not_depend_on_any_order(demand: Demand) -> None:
    draw = random.Random(51)
    answers = set()
    for _ in range(TIMES):
        names = draw.sample(["n1", "n2", "n3"], 3)
        nodes: list[Node] = [node(name, gpus=0) for name in draw.sample(names, 3)]
        vgpus, gpunodes = shuffled(draw, names)
        decision = policy("topology")(build(vgpus, gpunodes, nodes, []), demand)
        uuids = {each.metadata.name: each.spec.uuid for each in vgpus}
        answers.add((decision.node, tuple(uuids[device] for device in decision.devices)))
    [(name, gpus)] = answers
    assert name
    assert len(gpus) == demand.count


@pytest.mark.parametrize("door", DOORS)
def test_each_door_gives_those_gpus_by_uuid_and_writes_the_numbers_of_their_device_files(
    door: str,
) -> None:
    answers: list[object] = []
    for seed in range(4):
        draw = random.Random(seed)
        run_scenario(partial(_play, door, draw, answers), n0=6)
    assert answers == answers[:1] * 4


async def _play(
    door: str, draw: random.Random, answers: list[object], cluster: FakeCluster
) -> None:
    minors = draw.sample(range(6), 6)
    devices = [
        gpu | {"minor": minors[gpu["index"]]}
        for gpu in draw.sample(cluster.actors.devices["n0"], 6)
    ]
    cluster.server.change(GPUNODES, "n0", "", lambda obj: obj["spec"].update(devices=devices))
    link_six(cluster, "n0")
    await begin(cluster, door)
    for name, asked in (("a", "30"), ("b", "100"), ("c", "200")):
        await place(cluster, door, name, asked)
        written = published(cluster, name)[INDEX + "0"].split(",")
        held = [minors[index] for _, index in placed(cluster)[name]]
        assert sorted(map(int, written)) == sorted(held)
    answers.append(placed(cluster))
