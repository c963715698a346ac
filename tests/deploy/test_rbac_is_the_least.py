"""The roles of scheduler and device manager: all that they need, and nothing that they never ask.

``FakeCluster`` refuses what ``manifests/rbac`` does not allow, so any test
there fails where a rule is missing. Here all lives are played, some of them with troubles
that make a program look again, and what was never asked for is named.
``tests/e2e`` has the proof for all programs with the audit of a real API server.
"""

import json
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from expectations.pods import expect_event, expect_running
from fakes.cluster import FakeCluster
from fakes.cluster.quotas import expect_used, gaia_limits, limit, write_gaia_quotas
from fakes.cluster.usage import account
from kubeshare.api.types.constants import LABEL_POOL, NAMESPACE
from kubeshare.api.types.share_usage import SHARE_USAGES
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

CHECKED_OTHERWISE = {"devices": {Permission("update", "kubeshare.nthu", "sharepods/finalizers")}}
"""Rights that no life uses: an admission plugin requires this one."""

ADVICE = (
    "no life asks for it: take it out of manifests/rbac, or add a life in which the program "
    "needs it, in tests/robustness/fault_matrix/lives.py or in ALL_LIVES of this file"
)


async def _pending_again(cluster: FakeCluster) -> None:
    """A SharePod is pending for a reason that it had before."""
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.share("b", "0.7")
    await expect_event(cluster, "b")
    for name in ("c", "d"):
        cluster.share(name, "0.1")
        await expect_running(cluster, name)
    # It is looked at again when room grows, and then with other words.
    cluster.delete("d")
    await cluster.until(lambda: len(cluster.events("b")) > 1)
    cluster.delete("c")
    await cluster.until(lambda: any(_counted(each, "b") for each in cluster.server.all(EVENTS)))


async def _labelled_wrongly_again(cluster: FakeCluster) -> None:
    """The label of a node names an unknown pool policy, twice."""
    for labels in ({LABEL_POOL: "none"}, {}, {LABEL_POOL: "none"}):
        cluster.server.change(NODES, "n1", "", partial(_relabel, labels))
        await cluster.quiet(1)
    await cluster.until(lambda: any(_counted(each, "n1") for each in cluster.server.all(EVENTS)))


def _relabel(labels: dict[str, str], node: Raw) -> None:
    node["metadata"]["labels"] = labels


async def _with_a_volume(cluster: FakeCluster) -> None:
    """A plain pod is scheduled to the node of its volume."""
    cluster.storage.bound("data", "n1")
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = cluster.plain("a", spec={"volumes": [claim]})
    assert pod["spec"]["volumes"] == [claim]
    await expect_running(cluster, "a")


async def _with_a_claim(cluster: FakeCluster) -> None:
    """A plain pod is scheduled to a node with a free volume for its claim."""
    cluster.storage.kind("disk", waits=True)
    cluster.storage.claim("data", "disk")
    cluster.storage.free("free", "n1", "disk")
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    cluster.plain("a", spec={"volumes": [claim]})
    await expect_running(cluster, "a")


async def _within_a_quota(cluster: FakeCluster) -> None:
    """A SharePod counts in a GPUQuota, and gpu-admission has quotas."""
    limit(cluster, {"gpus": 1})
    await cluster.run("a")
    await expect_used(cluster, ("GPUs 0.3", "GPUs 1"))
    cluster.delete("a")
    write_gaia_quotas(cluster, default={"quota": {"V100": 1}})
    await cluster.until(lambda: gaia_limits(cluster))
    write_gaia_quotas(cluster)
    await cluster.until(lambda: gaia_limits(cluster) is None)


async def _after_an_old_account(cluster: FakeCluster) -> None:
    """An account is older than the configuration keeps it."""
    account(cluster, "old", 91)
    await cluster.until(lambda: not cluster.server.all(SHARE_USAGES))


def _counted(event: Raw, name: str) -> bool:
    return event["regarding"]["name"] == name and "series" in event


ALL_LIVES = LIVES | {
    "pending again": Life(_pending_again, {"n1": 1}),
    "labelled wrongly again": Life(_labelled_wrongly_again, {"n1": 1}),
    "with a volume": Life(_with_a_volume, {"n1": 1}),
    "with a claim": Life(_with_a_claim, {"n1": 1}),
    "within a quota": Life(_within_a_quota, {"n1": 1}),
    "after an old account": Life(_after_an_old_account, {"n1": 1}),
}
"""The lives of the fault matrix, and those for rights only."""


async def _run(cluster: FakeCluster, life: Life) -> None:
    outcome = await run_life(cluster, life)
    assert not outcome.stuck, outcome.stuck
    assert not cluster.invariants.violations


def _play(life: str, trouble: str = "", write: int = 0) -> FakeCluster:
    cluster = FakeCluster(**ALL_LIVES[life].gpus)
    cluster.elect = True
    if trouble:
        cluster.server.inject_at_write(write, lambda: TROUBLES[trouble].strike(cluster))
    run_virtual(_run(cluster, ALL_LIVES[life]))
    return cluster


@pytest.fixture(scope="module")
def unused() -> dict[str, set[Permission]]:
    """Program -> the rights that it never used."""
    clusters = [_play(life) for life in ALL_LIVES]
    for life, trouble in RARE:
        clusters += [_play(*point[:3]) for point in [*points(life, [trouble])][::3]]
    return {
        program: set.intersection(*(cluster.rights[program].unused for cluster in clusters))
        for program in clusters[0].rights
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
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
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
