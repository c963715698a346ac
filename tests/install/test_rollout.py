"""An installation that does not come to its end says what to look at."""

from pathlib import Path

import pytest
import yaml

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.cli.main import main
from kubeshare.install import manifests, rollout
from kubeshare.simulator.control import FakeApiServer, run_virtual

LOADED = manifests.load(manifests.Options())


def test_a_part_that_does_not_come_up_is_named_with_the_command_that_shows_it() -> None:
    async def install() -> None:
        server = FakeApiServer()
        deployments = [one for one in LOADED if one["kind"] == "Deployment"][:1]
        name = deployments[0]["metadata"]["name"]
        async with server.client("administrator") as client:
            with pytest.raises(
                rollout.RolloutError, match=f"kubectl describe deployments {name} -n {NAMESPACE}`"
            ):
                await rollout.install(client, deployments, deadline=1, say=lambda _: None)

    run_virtual(install())


def applied(*there: str) -> list[str]:
    """Installs the workloads where some exist and none ever comes up: the names of the applied."""
    workloads = [one for one in LOADED if one["kind"] in ("DaemonSet", "Deployment")]

    async def install() -> list[str]:
        server = FakeApiServer()
        for workload in workloads:
            if workload["metadata"]["name"] in there:
                server.seed(manifests.resource_of(workload), workload)
        async with server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError, match="is not up after 1 s"):
                await rollout.install(client, workloads, deadline=1, say=lambda _: None)
        return [each.path.name for each in server.requests if each.verb == "patch"]

    return run_virtual(install())


def test_an_upgrade_waits_for_the_token_daemon_before_it_applies_other_programs() -> None:
    assert applied("kubeshare-token-daemon", "kubeshare-node-agent") == ["kubeshare-token-daemon"]
    assert set(applied()) == {
        "kubeshare-device-manager",
        "kubeshare-node-agent",
        "kubeshare-scheduler",
        "kubeshare-token-daemon",
    }


def test_a_cluster_that_is_too_old_is_told_from_which_version_on_it_would_do() -> None:
    async def install() -> None:
        server = FakeApiServer()
        server.discovery.unserved.add("MutatingAdmissionPolicy")
        async with server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError) as caught:
                await rollout.install(client, LOADED, deadline=1, say=lambda _: None)
        assert str(caught.value) == (
            "nothing was changed: this cluster has no MutatingAdmissionPolicy "
            "(admissionregistration.k8s.io/v1): KubeShare needs Kubernetes 1.36 or later with "
            "these kinds (serve their API group: see --runtime-config of kube-apiserver)"
        )
        assert server.writes == 0

    run_virtual(install())


def test_a_cluster_that_does_not_answer_is_not_one_that_says_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    for command in ("install", "uninstall"):
        assert main([command, "--kubeconfig", str(path)]) == 3
        assert "cannot connect to the API server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--image", ""), ("--driver-root", "run/nvidia"), ("--wait", "-1")],
)
def test_an_option_that_cannot_be_is_wrong_use(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--dry-run", option, value]) == 2
    assert option in capsys.readouterr().err


def test_a_second_installation_in_another_namespace_changes_nothing() -> None:
    server = FakeApiServer()
    for manifest in manifests.load(manifests.Options(namespace="first")):
        if manifest["kind"] == "ClusterRoleBinding":
            server.seed(manifests.resource_of(manifest), manifest)

    async def run() -> str:
        async with server.client("administrator") as client:
            second = manifests.load(manifests.Options(namespace="second"))
            with pytest.raises(rollout.RolloutError) as caught:
                await rollout.install(client, second, deadline=1, say=lambda _: None)
            return str(caught.value)

    assert "KUBESHARE_NAMESPACE=first" in run_virtual(run())
    assert not [each for each in server.requests if each.is_write]
