"""The roles of scheduler and device manager: all that they need, and nothing that they never ask.

Every world of ``fakes.cluster`` refuses what ``deploy/rbac`` does not allow, so any test
there fails where a rule is missing. Here all lives are told, some of them with troubles
that make a program look again, and what was never asked for is named.
``tests/e2e`` has the proof for all programs with the audit of a real API server.
"""

import json
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from expectations import expect_event, expect_running
from fakes.cluster import World
from kubeshare.api.types.constants import LABEL_POOL, NAMESPACE
from kubeshare.device_manager.sharepod.pods import manifest
from kubeshare.install import manifests
from kubeshare.kube.resources import EVENTS, NODES, Raw
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server, wait_until
from kubeshare.lab.errors import LabError
from kubeshare.simulator.control import Permission, run_virtual
from robustness.fault_matrix.lives import LIVES, Life
from robustness.fault_matrix.matrix import points, run_life
from robustness.fault_matrix.troubles import TROUBLES

RARE = (("alone", "409"), ("plain", "409"), ("together", "API server killed after it"))
"""Lives and troubles after which programs list objects again and repeat writes."""

CHECKED_OTHERWISE = {
    "devices": {
        Permission("update", "kubeshare.nthu", "sharepods/finalizers"),
        Permission("create", "resource.k8s.io", "resourceclaims", NAMESPACE),
    },
}
"""Rights that no life uses: an admission plugin requires the first, and placeholders on nodes with
a DRA driver use the second, for which the audit of ``tests/e2e`` has the proof."""

ADVICE = (
    "no life asks for it: take it out of deploy/rbac, or tell a life in which the program "
    "needs it, in tests/robustness/fault_matrix/lives.py or in TOLD of this file"
)


async def _told_again(world: World) -> None:
    """A SharePod is pending for a reason that it had before."""
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.share("b", "0.7")
    await expect_event(world, "b")
    world.share("c", "0.1")
    await world.until(lambda: world.running("c") and len(world.events("b")) > 1)
    world.delete("c")
    await world.until(lambda: any(_counted(each, "b") for each in world.server.all(EVENTS)))


async def _labelled_wrongly_again(world: World) -> None:
    """The label of a node names an unknown pool policy, twice."""
    for labels in ({LABEL_POOL: "none"}, {}, {LABEL_POOL: "none"}):
        world.server.change(NODES, "n1", "", partial(_relabel, labels))
        await world.quiet(1)
    await world.until(lambda: any(_counted(each, "n1") for each in world.server.all(EVENTS)))


def _relabel(labels: dict[str, str], node: Raw) -> None:
    node["metadata"]["labels"] = labels


async def _with_a_volume(world: World) -> None:
    """A plain pod is scheduled to the node of its volume."""
    world.storage.bound("data", "n1")
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = world.plain("a", spec={"volumes": [claim]})
    assert pod["spec"]["volumes"] == [claim]
    await expect_running(world, "a")


async def _with_a_claim(world: World) -> None:
    """A plain pod is scheduled to a node with a free volume for its claim."""
    world.storage.kind("disk", waits=True)
    world.storage.claim("data", "disk")
    world.storage.free("free", "n1", "disk")
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    world.plain("a", spec={"volumes": [claim]})
    await expect_running(world, "a")


def _counted(event: Raw, name: str) -> bool:
    return event["regarding"]["name"] == name and "series" in event


TOLD = LIVES | {
    "told again": Life(_told_again, {"n1": 1}),
    "labelled wrongly again": Life(_labelled_wrongly_again, {"n1": 1}),
    "with a volume": Life(_with_a_volume, {"n1": 1}),
    "with a claim": Life(_with_a_claim, {"n1": 1}),
}
"""The lives of the fault matrix, and those for rights only."""


async def _told(world: World, life: Life) -> None:
    outcome = await run_life(world, life)
    assert not outcome.stuck, outcome.stuck
    assert not world.invariants.violations


def _play(life: str, trouble: str = "", write: int = 0) -> World:
    world = World(**TOLD[life].gpus)
    world.elect = True
    if trouble:
        world.server.inject_at_write(write, lambda: TROUBLES[trouble].strike(world))
    run_virtual(_told(world, TOLD[life]))
    return world


@pytest.fixture(scope="module")
def unused() -> dict[str, set[Permission]]:
    """Program -> the rights that it never used."""
    worlds = [_play(life) for life in TOLD]
    for life, trouble in RARE:
        worlds += [_play(*point[:3]) for point in points(life, [trouble])]
    return {
        program: set.intersection(*(world.rights[program].unused for world in worlds))
        for program in worlds[0].rights
    }


@pytest.mark.slow
@pytest.mark.xdist_group("roles")
@pytest.mark.parametrize("program", ["scheduler", "devices"])
def test_a_program_may_nothing_that_it_never_asks_for(
    unused: dict[str, set[Permission]], program: str
) -> None:
    too_much = unused[program] - CHECKED_OTHERWISE.get(program, set())
    assert [f"{grant}: {ADVICE}" for grant in sorted(too_much)] == []


@pytest.fixture(scope="module")
def strict() -> Iterator[ApiServer]:
    """An API server with OwnerReferencesPermissionEnforcement, our kinds and roles."""
    with local_api_server(None, "OwnerReferencesPermissionEnforcement") as server:
        wanted = {"CustomResourceDefinition", "Namespace", "ServiceAccount", "Role", "RoleBinding"}
        wanted |= {"ClusterRole", "ClusterRoleBinding"}
        ours = [each for each in manifests.load(manifests.Options()) if each["kind"] in wanted]
        server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield server


@pytest.mark.apiserver
def test_the_device_manager_may_make_a_pod_whose_sharepod_waits_for_it(strict: ApiServer) -> None:
    account = "kubeshare-device-manager"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    user = strict.kubeconfig_for(f"system:serviceaccount:{NAMESPACE}:{account}", groups)
    sharepod = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }
    strict.kubectl("create", "-f", "-", stdin=yaml.safe_dump(sharepod))
    made = json.loads(strict.kubectl("get", "shp", "a", "-o", "json"))
    pod = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **manifest(made, ())})

    def create() -> str:
        return strict.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod, kubeconfig=user)

    def refused() -> bool:
        try:
            create()
        except LabError as error:
            return "blockOwnerDeletion" in str(error)
        return False

    assert "created" in create()
    role = json.loads(strict.kubectl("get", "clusterrole", account, "-o", "json"))
    role["rules"] = [
        rule for rule in role["rules"] if rule["resources"] != ["sharepods/finalizers"]
    ]
    strict.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    wait_until(refused, "the API server to refuse the pod")
