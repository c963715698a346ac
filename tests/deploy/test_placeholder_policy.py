"""A placeholder is deleted by those alone who know that nobody needs it any more."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml

from deploy.rights import every_right
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.device_manager.placeholder.pods import manifest
from kubeshare.install import manifests
from kubeshare.install.uninstall import DEVICE_MANAGER
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PODS
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

ACCOUNT = "system:serviceaccount:"
ALLOWED = [
    (f"{ACCOUNT}kubeshare-system:kubeshare-device-manager",),
    ("system:node:node-1", "system:nodes"),
    ("system:kube-controller-manager",),
    (f"{ACCOUNT}kube-system:pod-garbage-collector",),
    (f"{ACCOUNT}kube-system:generic-garbage-collector",),
    (f"{ACCOUNT}kube-system:namespace-controller",),
    (f"{ACCOUNT}kube-system:node-controller",),
    (f"{ACCOUNT}kube-system:taint-eviction-controller",),
]
REFUSED = [
    ("kubernetes-admin", "system:masters"),
    ("system:kube-scheduler",),
    (f"{ACCOUNT}kubeshare-system:kubeshare-scheduler",),
    (f"{ACCOUNT}kubeshare-system:default",),
    (f"{ACCOUNT}elsewhere:kubeshare-device-manager",),
]
USER = "placeholder-policy-test"


@pytest.fixture(autouse=True, scope="module")
def everybody_may_delete(cluster: ApiServer) -> Iterator[None]:
    """Give all of them every right, so that what refuses them is the policy alone."""
    ours = manifests.load(manifests.Options())
    needed = [one for one in ours if one["kind"] in ("PriorityClass", "Namespace")]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(needed))
    with every_right(cluster, USER, *(user[0] for user in ALLOWED + REFUSED)):
        yield


@pytest.fixture
def placeholder(cluster: ApiServer) -> Iterator[str]:
    """A placeholder that the device manager has made; its name."""
    spec = VGPUSpec(node_name="node-1")
    vgpu = VGPU(metadata=ObjectMeta(name=f"test-{uuid4().hex[:8]}"), spec=spec)
    where = json.loads(cluster.kubectl("get", "namespace", NAMESPACE, "-o", "json"))
    made = manifest(vgpu, "none", where["metadata"]["uid"])
    # No controller makes the default account here.
    made["spec"] |= {"serviceAccountName": "none", "nodeName": "node-1"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "none"}}
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(account))
    pod = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **made})
    cluster.kubectl("create", "-f", "-", as_user(ALLOWED[0]), stdin=pod)
    name: str = made["metadata"]["name"]
    yield name
    cluster.kubectl(*delete(name), "--ignore-not-found", as_user(ALLOWED[0]))


def as_user(user: tuple[str, ...]) -> str:
    return f"--as={user[0]}"


def delete(name: str) -> tuple[str, ...]:
    return ("delete", "pod", name, "-n", NAMESPACE, "--grace-period=0", "--force", "--wait=false")


def groups(user: tuple[str, ...]) -> list[str]:
    return [f"--as-group={group}" for group in (*user[1:], "system:authenticated")]


@pytest.mark.parametrize("user", ALLOWED, ids=lambda user: user[0])
def test_who_knows_that_nobody_needs_it_deletes_it(
    cluster: ApiServer, placeholder: str, user: tuple[str, ...]
) -> None:
    cluster.kubectl(*delete(placeholder), as_user(user), *groups(user))


@pytest.mark.parametrize("user", REFUSED, ids=lambda user: user[0])
def test_nobody_else_deletes_it_and_the_message_says_what_to_do(
    cluster: ApiServer, placeholder: str, user: tuple[str, ...]
) -> None:
    with pytest.raises(LabError, match=r"it is deleted when they are gone.*kubectl get vgpu test-"):
        cluster.kubectl(*delete(placeholder), as_user(user), *groups(user))
    cluster.kubectl("get", "pod", placeholder, "-n", NAMESPACE)


async def delete_as_uninstall(cluster: ApiServer, placeholder: str) -> None:
    config = cluster.kubeconfig
    async with Client.connect(config, impersonate=DEVICE_MANAGER) as device_manager:
        await device_manager.delete(PODS, placeholder, NAMESPACE, grace=0)


def test_who_takes_kubeshare_off_deletes_it_in_the_name_of_the_device_manager(
    cluster: ApiServer, placeholder: str
) -> None:
    asyncio.run(delete_as_uninstall(cluster, placeholder))
    assert placeholder not in cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name")


def test_no_annotation_lets_an_administrator_delete_it(
    cluster: ApiServer, placeholder: str
) -> None:
    admin = REFUSED[0]
    mark = "kubeshare.nthu/given-back=true"
    cluster.kubectl("annotate", "pod", placeholder, "-n", NAMESPACE, mark, as_user(admin))
    with pytest.raises(LabError, match="it is deleted when they are gone"):
        cluster.kubectl(*delete(placeholder), as_user(admin), *groups(admin))


def end(cluster: ApiServer, name: str, phase: str, user: tuple[str, ...]) -> None:
    status = json.dumps({"status": {"phase": phase}})
    which = ("pod", name, "-n", NAMESPACE, "--subresource=status", "--dry-run=server")
    how = ("--type=merge", "-p", status)
    cluster.kubectl("patch", *which, *how, as_user(user), *groups(user))


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_only_kubernetes_says_that_one_has_ended(
    cluster: ApiServer, placeholder: str, phase: str
) -> None:
    for user in (REFUSED[0], ALLOWED[0]):
        with pytest.raises(LabError, match=r"status\.phase: .* its kubelet would end it"):
            end(cluster, placeholder, phase, user)
    for user in (("system:node:node-1", "system:nodes"), *ALLOWED[2:4]):
        end(cluster, placeholder, phase, user)
    end(cluster, placeholder, "Running", REFUSED[0])


def test_all_pods_of_the_namespace_at_once_are_refused_too(
    cluster: ApiServer, placeholder: str
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    with pytest.raises(LabError, match="it is deleted when they are gone"):
        cluster.kubectl(
            "delete", "--raw", path, "--as=kubernetes-admin", "--as-group=system:masters"
        )
    cluster.kubectl("get", "pod", placeholder, "-n", NAMESPACE)


def test_other_pods_of_the_namespace_are_deleted_as_ever(cluster: ApiServer) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": NAMESPACE},
        "spec": {"serviceAccountName": "none", "containers": [{"name": "main", "image": "none"}]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    cluster.kubectl(*delete("other"))


def evict(cluster: ApiServer, name: str) -> str:
    """Ask to evict a placeholder, and return the words of the refusal, if it is one."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    try:
        cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    except LabError as error:
        return str(error)
    return ""


def test_one_in_use_is_not_evicted(cluster: ApiServer, placeholder: str) -> None:
    ours = manifests.load(manifests.Options())
    name = "kubeshare-guard-placeholders"
    budgets = [one for one in ours if one["kind"] == "PodDisruptionBudget"]
    (budget,) = [one for one in budgets if one["metadata"]["name"] == name]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(budget))
    runs = json.dumps({"status": {"phase": "Running"}})
    which = ("pod", placeholder, "-n", NAMESPACE)
    cluster.kubectl("patch", *which, "--subresource=status", "--type=merge", "-p", runs)
    # Drains ask again where it is a budget that refuses, and give up on any other refusal.
    wait_until(lambda: "disruption budget" in evict(cluster, placeholder), "the budget to refuse")
    cluster.kubectl("get", *which)


def test_one_in_use_is_not_evicted_before_it_runs(cluster: ApiServer, placeholder: str) -> None:
    wait_until(lambda: "and is starting" in evict(cluster, placeholder), "the policy to refuse")
    cluster.kubectl("get", "pod", placeholder, "-n", NAMESPACE)


def test_one_that_nobody_shares_is_evicted(cluster: ApiServer, placeholder: str) -> None:
    idle = ("label", "pod", placeholder, "kubeshare.nthu/in-use=false", "--overwrite")
    where = ("-n", NAMESPACE)
    with pytest.raises(LabError, match=r"kubeshare\.nthu/in-use is written by KubeShare alone"):
        cluster.kubectl(*idle, *where)
    cluster.kubectl(*idle, *where, as_user(ALLOWED[0]))

    wait_until(lambda: not evict(cluster, placeholder), "the eviction to be accepted")
