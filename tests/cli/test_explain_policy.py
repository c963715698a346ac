"""`kubeshare explain` decides by the scheduler's own policy, and says where it only assumes it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.policy_package import RAISING, WHO, install_policy
from fakes.web.cluster import add_share, add_vgpu, small_cluster
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.client import Cluster
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.explain.errors import NotAllowedError
from kubeshare.explain.finding import Finding
from kubeshare.explain.formats import finding_fields, finding_text
from kubeshare.explain.scheduler_policy import policy_name
from kubeshare.install import manifests
from kubeshare.kube.resources import DEPLOYMENTS
from kubeshare.simulator.control import Authorizer, FakeApiServer

USER = "user"
BY_COMPUTE, BY_MEMORY = "gpu-c/vgpu-c0", "gpu-c/vgpu-c1"
"""The GPU with the least compute left, which locality prefers, and with the least memory left."""


def scheduler(*words: str, key: str = "command") -> dict[str, Any]:
    """The scheduler's Deployment with these words at the end of its command, or as arguments."""
    container = {"name": "scheduler", "command": ["python3", "-m", "kubeshare.scheduler"]}
    container[key] = [*container.get(key, ()), *words]
    spec = {"template": {"spec": {"containers": [container]}}}
    metadata = {"name": "kubeshare-scheduler", "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": spec}


def cluster() -> FakeApiServer:
    """Two GPUs with room, and a SharePod `small` that fits on both."""
    server = small_cluster()
    add_vgpu(server, "gpu-c", 1, add_share(server, "a", "x", "0.2", 60, "gpu-c", "vgpu-c1"))
    condition = {"reason": "Unschedulable", "message": ""}
    model = {"model": "NVIDIA A100-SXM4-80GB"}
    add_share(server, "default", "small", "0.1", 1, condition=condition, gpu=model)
    return server


def explained(server: FakeApiServer, policy: str | None = None) -> Finding:
    async def main() -> Finding:
        async with server.client(USER) as client:
            return await Cluster(client).explain("small", "default", policy=policy)

    return asyncio.run(main())


def where(finding: Finding) -> str:
    return f"{finding.decision.node}/{finding.decision.devices[0]}"


@pytest.mark.parametrize(
    ("words", "key", "name"),
    [
        ((), "command", "locality"),
        (("--policy", "binpack"), "command", "binpack"),
        (("--no-election", "--policy=topology"), "args", "topology"),
        (("--policy", "binpack", "--policy", "mine"), "args", "mine"),
        (("--policy",), "args", "locality"),
    ],
)
def test_the_policy_is_that_of_the_schedulers_arguments(
    words: tuple[str, ...], key: str, name: str
) -> None:
    assert policy_name(scheduler(*words, key=key)) == name


@pytest.mark.parametrize(
    ("words", "given", "expected"),
    [
        ((), None, BY_COMPUTE),
        (("--policy", "binpack"), None, BY_MEMORY),
        (("--policy", "binpack"), "locality", BY_COMPUTE),
    ],
)
def test_it_decides_as_the_scheduler_does_unless_asked_otherwise(
    words: tuple[str, ...], given: str | None, expected: str
) -> None:
    server = cluster()
    server.seed(DEPLOYMENTS, scheduler(*words))
    finding = explained(server, given)
    assert where(finding) == expected
    assert not finding.policy_note


def test_without_that_deployment_it_says_what_it_assumes() -> None:
    finding = explained(cluster())
    assert where(finding) == BY_COMPUTE
    words = (
        "the placement policy is assumed to be locality: there is no Deployment "
        "kubeshare-scheduler in namespace kubeshare-system, which names it"
    )
    assert finding.policy_note == words
    assert f"    {words}" in finding_text(finding).splitlines()
    assert finding_fields(finding)["policyNote"] == words


def test_a_policy_that_is_not_installed_here_is_said_and_nothing_is_assumed() -> None:
    server = cluster()
    server.seed(DEPLOYMENTS, scheduler("--policy", "ours"))
    words = "the scheduler decides by a policy that is not installed here: policy ours is not"
    with pytest.raises(UnknownPolicyError, match=words):
        explained(server)


def bound(*without: str) -> Authorizer:
    """The ClusterRole `kubeshare-explain` of the chart without these resources, and SharePods."""
    [role] = [
        each
        for each in manifests.load(manifests.Options(namespace=NAMESPACE))
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "kubeshare-explain")
    ]
    kept = [
        each | {"resources": [name for name in each["resources"] if name not in without]}
        for each in role["rules"]
    ]
    read = ["get", "list", "watch"]
    ours = {"apiGroups": ["kubeshare.nthu"], "resources": ["sharepods", "gpuquotas"]}
    core = {"apiGroups": [""], "resources": ["resourcequotas"]}
    mine = role | {"rules": [*kept, ours | {"verbs": read}, core | {"verbs": read}]}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "subjects": [{"name": USER}],
        "roleRef": {"kind": "ClusterRole", "name": "kubeshare-explain"},
    }
    return Authorizer([mine, binding], USER)


def test_the_role_of_the_chart_is_what_it_needs() -> None:
    server = cluster()
    server.seed(DEPLOYMENTS, scheduler("--policy", "binpack"))
    server.authorizers[USER] = bound()
    finding = explained(server)
    assert (where(finding), finding.policy_note) == (BY_MEMORY, "")
    assert not server.authorizers[USER].refused


@pytest.mark.parametrize("missing", [("nodes",), ("vgpus", "nodes", "pods")])
def test_without_the_right_to_list_something_it_says_which_and_what_helps(
    missing: tuple[str, ...],
) -> None:
    server = cluster()
    server.authorizers[USER] = bound(*missing)
    words = f"may not list all {', '.join(missing)}: ask an administrator to bind you the Clus"
    with pytest.raises(NotAllowedError, match=words) as error:
        explained(server)
    assert error.value.exit_code == 3


def test_who_may_not_read_the_deployment_is_told_what_is_assumed() -> None:
    server = cluster()
    server.seed(DEPLOYMENTS, scheduler("--policy", "binpack"))
    server.authorizers[USER] = bound("deployments")
    finding = explained(server)
    assert where(finding) == BY_COMPUTE
    assert "locality: you may not read Deployment kubeshare-scheduler in" in finding.policy_note


def test_a_policy_that_raises_is_named_and_nothing_decides_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, RAISING)
    assert finding_text(explained(cluster(), "house")).splitlines()[:2] == [
        "default/small: pending (policy)",
        f"    policy: {WHO} raised ZeroDivisionError: oh (line 6 of house_policy)",
    ]
