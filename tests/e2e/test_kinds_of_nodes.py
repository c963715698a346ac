"""An owned node, one with a device plugin and one with a DRA driver, side by side.

Pods that share a GPU of each run from the first step to the last: while the first node is taken
over and given back, while the third is taken over from its DRA driver and given back to it, and
while the leader of the device manager is killed in each of these. A fourth node has GPUs that
differ.
"""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from e2e.booting import booted, new_space
from e2e.ownership import owned_condition, until_owned
from e2e.space import BURN, REST, Space
from e2e.stage import DEVICE_MANAGER, SCHEDULER, Place, Raw, Stage, eventually
from e2e.trio import TOLERANCE
from kubeshare import fakegpu
from kubeshare.api.types.constants import NAMESPACE, NVIDIA_DRA_DRIVER
from kubeshare.lab.cluster import Shape
from kubeshare.lab.node import gpus
from labs import GONE, lab_of_this_run
from wakeups import least_disturbed

pytestmark = pytest.mark.lab

OWNED, PLUGIN, CLAIMS = NODES = ("node-1", "node-2", "node-4")
MIXED = "node-3"
LINKED, SMALL = "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"
"""Two models of the mixed node; its third one is the only GPU with 32 GiB."""
FIRST = "locality"
"""The policy with which KubeShare is installed; it loses a GPU of the node with a plugin."""
OTHERS = {"binpack": OWNED, "topology": CLAIMS}
"""Policy -> the node of which it loses a GPU."""
SECONDS = 300.0
WORK = ("burn", "--kernel-us", "1000", "--rate", "20", "--seconds", "3600")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A lab of its own, with a node of each kind; the first is not owned yet.

    The mixed node is asked for at once: the takeover waits a minute.
    """
    [mixed] = [path for path in fakegpu.profiles() if "mixed" in path.name]
    shape = Shape(nodes=4, gpus=f"V100x3,V100x3,{mixed},V100x3", dra=1)
    with booted(lab_of_this_run(GONE).name, shape=shape) as stage:
        ask_for(stage, MIXED)
        yield stage


@pytest.fixture(autouse=True)
def _recorded() -> None:
    """Stalls are those of the lab that the other tests share."""


@pytest.fixture
def space(stage: Stage) -> Space:
    """A namespace of this lab, which goes with it."""
    return new_space(stage)


def test_whole_gpus_of_a_pod_work_all_the_time_beside_one_that_it_shares(
    stage: Stage, space: Space
) -> None:
    """A process for each GPU of a pod of 2.5; all three GPUs of the node are in use."""
    each = [" ".join((*BURN, "--device", str(index))) for index in range(3)]
    share(space, "beside", PLUGIN, "0.5", *BURN)
    first = space.ready("beside")
    share(space, "wide", PLUGIN, "2.5", "sh", "-c", " & ".join((*each, "wait")))
    space.until_phase("wide", "Running")

    here = [each["spec"] for each in stage.vgpus() if each["spec"]["nodeName"] == PLUGIN]
    mine = [Place(PLUGIN, spec["gpuid"], spec["uuid"]) for spec in here]
    assert len(mine) == 3
    for place in mine:
        half = {"wide": 0.5, "beside": 0.5}
        expected = half if place == first else {"wide": 1.0}
        measured, lost = least_disturbed(partial(stage.shares, place, expected))
        assert measured == pytest.approx(expected, abs=TOLERANCE + lost), lost

    for name in ("wide", "beside"):
        space.delete("shp", name)
    eventually(lambda: not pools(stage, PLUGIN, "onDemand"), "the GPUs to be given back")


def test_model_and_memory_choose_the_gpu_where_each_differs(stage: Stage, space: Space) -> None:
    by_model = {gpu["model"]: gpu["uuid"] for gpu in devices(stage, MIXED)}
    [large] = [gpu["uuid"] for gpu in devices(stage, MIXED) if gpu["memoryBytes"] > 16 << 30]
    expected = {"linked": by_model[LINKED], "large": large, "small": by_model[SMALL]}
    assert len(set(expected.values())) == 3

    until_owned(stage, MIXED)
    stage.kubectl("uncordon", MIXED)
    assert chosen(space, "owned") == expected
    for name in expected:
        space.delete("shp", f"owned-{name}")
    eventually(lambda: not holding(stage, MIXED), "the shares to be released")
    stage.kubectl("cordon", MIXED)
    stage.kubectl("label", "node", MIXED, "kubeshare.nthu/gpus-")
    eventually(lambda: not pools(stage, MIXED, "static"), "the GPUs to be given back")
    gpus.start_device_plugin(stage.node(MIXED).machine)
    eventually(lambda: stage.gpunode(MIXED)["status"]["mode"] == "shared", f"{MIXED} to be shared")
    stage.kubectl("uncordon", MIXED)
    # The plugin gives any GPU: a placeholder that got a wrong one is exchanged.
    assert chosen(space, "plugin") == expected
    for name in expected:
        space.delete("shp", f"plugin-{name}")
    eventually(lambda: not pools(stage, MIXED, "onDemand"), "the GPUs to be given back")


def test_shares_run_on_through_every_change_and_each_policy_fails_over(
    stage: Stage, space: Space
) -> None:
    stage.configure(gpuFailure="evict")
    kept = keep_sharing(space)
    begin_to_own(stage, OWNED)
    take_from_the_driver_and_give_back(stage, kept[CLAIMS])
    # The takeover waits a minute for the plugin not to come back.
    fill(stage, space, FIRST, PLUGIN, CLAIMS)
    fail_over(stage, space, f"{FIRST}-{PLUGIN}-c", PLUGIN)
    until_owned(stage, OWNED, "Owned")
    eventually(lambda: len(pools(stage, OWNED, "static")) == 3, "three static vGPUs")
    assert kept[OWNED].uuid in pools(stage, OWNED, "static")
    stage.kubectl("uncordon", OWNED)
    fill(stage, space, FIRST, OWNED)
    release(stage, space, FIRST, kept)
    for policy, failing in OTHERS.items():
        schedule_by(stage, policy)
        fill(stage, space, policy, *NODES)
        fail_over(stage, space, f"{policy}-{failing}-c", failing)
        release(stage, space, policy, kept)
    give_back(stage, OWNED, kept[OWNED])
    for node, place in kept.items():
        assert space.ready(f"kept-{node}") == place
        assert space.lives(f"kept-{node}")[1] == 0
        stage.works_for(place, f"kept-{node}")


# The steps.


def keep_sharing(space: Space) -> dict[str, Place]:
    """A SharePod on each node that runs to the end."""
    for node in NODES:
        share(space, f"kept-{node}", node, "0.1", *WORK)
    return {node: space.ready(f"kept-{node}") for node in NODES}


def begin_to_own(stage: Stage, node: str) -> None:
    """Ask for a node, and kill the device manager that takes it over."""
    ask_for(stage, node)
    until_owned(stage, node, "TakingOver")
    stage.delete_pod(DEVICE_MANAGER)


def ask_for(stage: Stage, node: str) -> None:
    """Stop the plugin of a node, and ask for its GPUs."""
    stage.kubectl("cordon", node)
    stage.lab.stop_component(f"{node}/{gpus.DEVICE_PLUGIN}")
    stage.kubectl("label", "node", node, "kubeshare.nthu/gpus=owned")


def chosen(space: Space, prefix: str) -> dict[str, str]:
    """The GPUs of SharePods on the mixed node: two ask for a model, one for memory."""
    asked = {"linked": {"model": LINKED}, "large": {"memory": "20Gi"}, "small": {"model": SMALL}}
    here = {"kubernetes.io/hostname": MIXED}
    for name, wanted in asked.items():
        space.share(f"{prefix}-{name}", {"request": "0.5", **wanted}, REST, nodeSelector=here)
    return {name: space.ready(f"{prefix}-{name}", seconds=SECONDS).uuid for name in asked}


def take_from_the_driver_and_give_back(stage: Stage, kept: Place) -> None:
    """The vGPU in use becomes static while the driver runs, and gets a claim when it is back."""
    stage.kubectl("cordon", CLAIMS)
    stage.kubectl("label", "node", CLAIMS, "kubeshare.nthu/gpus=owned")
    eventually(
        lambda: pools(stage, CLAIMS, "static") == [kept.uuid] and not stage.items(claims_path()),
        "the claims to be released",
        explain=lambda: str((stage.vgpus(), owned_condition(stage, CLAIMS))),
    )
    assert "dra-kubelet-plugin=false" in until_owned(stage, CLAIMS, "TakingOver")["message"]
    machine, layout = stage.node(CLAIMS).machine, stage.node(CLAIMS).layout
    machine.stop(gpus.DRA_DRIVER)
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    stage.lab.api.send("DELETE", f"{slices}/{CLAIMS}-{NVIDIA_DRA_DRIVER}")
    stage.kubectl("label", "node", CLAIMS, "kubeshare.nthu/gpus-")
    stage.delete_pod(DEVICE_MANAGER)
    gpus.start_dra_driver(machine, layout)
    until_shared(stage, CLAIMS, kept)
    assert len(stage.items(claims_path())) == 1


def fill(stage: Stage, space: Space, policy: str, *nodes: str) -> None:
    """Two fit beside the one that is kept, one needs a GPU of its own: on every node."""
    wanted = {"a": "0.4", "b": "0.4", "c": "1"}
    for suffix, request in wanted.items():
        for node in nodes:
            share(space, f"{policy}-{node}-{suffix}", node, request)
    for node in nodes:
        places = {each: space.ready(f"{policy}-{node}-{each}", seconds=SECONDS) for each in wanted}
        assert {place.node for place in places.values()} == {node}
        kept = space.ready(f"kept-{node}")
        assert places["a"] == places["b"] == kept
        assert places["c"].uuid != kept.uuid
    by_claims = [vgpu["spec"] for vgpu in stage.vgpus() if vgpu["spec"]["nodeName"] == CLAIMS]
    assert all(spec["selectedUuid"] == spec["uuid"] for spec in by_claims)


def fail_over(stage: Stage, space: Space, name: str, node: str) -> None:
    """The GPU of a SharePod is lost: it runs on another GPU of its node."""
    before = space.ready(name)
    (index,) = [gpu["index"] for gpu in devices(stage, node) if gpu["uuid"] == before.uuid]
    fakegpu.raise_error(stage.node(node).state_folder, int(index), fakegpu.LOST)

    def moved() -> bool:
        status = space.status(name)
        ready = {each["type"]: each["status"] for each in status.get("conditions", [])}
        uuids = {gpu["uuid"] for gpu in status.get("gpus", []) if "uuid" in gpu}
        return ready.get("Ready") == "True" and bool(uuids) and before.uuid not in uuids

    eventually(
        moved,
        f"{name} to run on another GPU",
        seconds=SECONDS,
        explain=lambda: space.describe(name),
    )


def release(stage: Stage, space: Space, policy: str, kept: dict[str, Place]) -> None:
    """All but the SharePods that are kept end; each vGPU that is not static goes."""
    for node in NODES:
        for suffix in "abc":
            space.delete("shp", f"{policy}-{node}-{suffix}")
    eventually(
        lambda: (
            {vgpu["spec"]["uuid"] for vgpu in stage.vgpus() if vgpu["status"].get("holders")}
            == {place.uuid for place in kept.values()}
            and [pools(stage, node, "onDemand") for node in (PLUGIN, CLAIMS)]
            == [[kept[PLUGIN].uuid], [kept[CLAIMS].uuid]]
        ),
        "the GPUs to be given back",
        explain=lambda: str(stage.vgpus()),
    )


def give_back(stage: Stage, node: str, kept: Place) -> None:
    """The vGPU in use gets a placeholder with its own GPU, whatever the plugin chooses."""
    stage.kubectl("cordon", node)
    stage.kubectl("label", "node", node, "kubeshare.nthu/gpus-")
    until_owned(stage, node, "Releasing")
    gpus.start_device_plugin(stage.node(node).machine)
    mine = f"kubeshare-vgpu-{kept.gpuid}"
    eventually(lambda: fillers(stage) or mine in stage.placeholders(), "a filler", seconds=SECONDS)
    stage.delete_pod(DEVICE_MANAGER)
    until_shared(stage, node, kept)
    eventually(lambda: not fillers(stage), "the fillers to be gone")


# What there is.


def share(space: Space, name: str, node: str, request: str, *command: str) -> None:
    memory = {} if float(request) > 1 else {"memory": "1Gi"}
    space.share(
        name,
        {"request": request, **memory},
        command or REST,
        nodeSelector={"kubernetes.io/hostname": node},
    )


def devices(stage: Stage, node: str) -> list[Raw]:
    found: list[Raw] = stage.gpunode(node)["spec"]["devices"]
    return found


def until_shared(stage: Stage, node: str, kept: Place) -> None:
    """Wait until a node is shared, and the vGPU in use has a placeholder; uncordon it."""
    eventually(
        lambda: stage.gpunode(node)["status"]["mode"] == "shared",
        f"{node} to be shared",
        seconds=SECONDS,
        explain=lambda: str((owned_condition(stage, node), stage.vgpus(), stage.placeholders())),
    )
    assert pools(stage, node, "onDemand") == [kept.uuid]
    assert f"kubeshare-vgpu-{kept.gpuid}" in stage.placeholders()
    stage.kubectl("uncordon", node)


def pools(stage: Stage, node: str, pool: str) -> list[str]:
    """The UUIDs of the vGPUs of a node in a pool."""
    specs = [vgpu["spec"] for vgpu in stage.vgpus() if vgpu["spec"]["nodeName"] == node]
    return sorted(spec.get("uuid", "") for spec in specs if spec["pool"] == pool)


def holding(stage: Stage, node: str) -> list[str]:
    """The UUIDs of the vGPUs of a node with holders."""
    found = [vgpu for vgpu in stage.vgpus() if vgpu["status"].get("holders")]
    return [vgpu["spec"]["uuid"] for vgpu in found if vgpu["spec"]["nodeName"] == node]


def claims_path() -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"


def fillers(stage: Stage) -> list[str]:
    pods = stage.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    names = [pod["metadata"]["name"] for pod in pods]
    return [name for name in names if name.startswith("kubeshare-filler-")]


def schedule_by(stage: Stage, policy: str) -> None:
    """Restart the scheduler with another placement policy than before."""
    command = json.loads(
        stage.kubectl("get", "deployment", "kubeshare-scheduler", "-n", NAMESPACE, "-o", "json")
    )["spec"]["template"]["spec"]["containers"][0]["command"]
    kept = [each for each in command if not each.startswith("--policy")]
    wanted = [*kept, f"--policy={policy}"]
    path = "/spec/template/spec/containers/0/command"
    patch = json.dumps([{"op": "replace", "path": path, "value": wanted}])
    before = stage.containers(SCHEDULER)
    which = ("deployment", "kubeshare-scheduler", "-n", NAMESPACE)
    stage.kubectl("patch", *which, "--type=json", "-p", patch)
    stage.until_ready(SCHEDULER, but=before)
