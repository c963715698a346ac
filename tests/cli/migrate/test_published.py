"""Replaces versions 1 and 2 of KubeShare, and goes back."""

from pathlib import Path

import pytest

from cli.migrate.published_cluster import (
    CRD,
    KUBE_SYSTEM,
    OLD_STATUS,
    migrate,
    put,
    sharepod_with_pod,
    version_1,
    version_2,
)
from expectations.pods import expect_sharepod_phase
from expectations.vgpus import expect_no_vgpus
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.cli.main import main
from kubeshare.cli.migrate.cluster_reader import MigrationError, WaitedError
from kubeshare.cli.migrate.published.programs import STOPPED
from kubeshare.cli.migrate.published.reading import OTHER_SHAREPODS
from kubeshare.install import manifests, rollout
from kubeshare.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    Raw,
)
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

PAGE = (Path(__file__).parents[3] / "docs/from-kubeshare.md").read_text()
PLACEHOLDER = "kubeshare-vgpu-n1-abcde"


def pod(server: FakeApiServer, name: str, namespace: str = KUBE_SYSTEM) -> Raw | None:
    return server.stored(PODS, name, namespace)


def daemon_is_stopped(server: FakeApiServer, name: str = "kubeshare-node-daemon") -> bool:
    found = server.stored(DAEMON_SETS, name, KUBE_SYSTEM)
    assert found is not None
    return STOPPED in (found["spec"]["template"].get("spec", {}).get("nodeSelector") or {})


def replicas(server: FakeApiServer, name: str) -> int:
    found = server.stored(DEPLOYMENTS, name, KUBE_SYSTEM)
    assert found is not None
    return int(found["spec"]["replicas"])


def test_a_cluster_without_an_earlier_version_has_nothing_to_replace() -> None:
    server = FakeApiServer()
    for mode in ("plan", "apply"):
        text, fields, code = migrate(server, mode)
        assert text.startswith("There is no KubeShare of version 1 or 2 on this cluster.")
        assert (code, fields["found"], fields["next"]) == (0, False, "kubeshare install")
    assert migrate(server, "back")[::2] == ("Nothing is left to undo.", 0)
    assert server.writes == 0


def test_a_plan_of_version_1_names_its_steps_in_order_and_changes_nothing() -> None:
    server = version_1()
    text, fields, code = migrate(server, "plan")
    assert code == 1
    assert fields["steps"] == [
        "stop Pod kube-system/kubeshare-scheduler",
        "stop Pod kube-system/kubeshare-device-manager",
        "replace the CRD; 1 SharePods stay",
        f"drop {', '.join(OLD_STATUS)} from the status of 1 SharePods",
        "remove ClusterRoleBinding kubeshare-device-manager, whose name this version needs",
        "remove ClusterRoleBinding kubeshare-scheduler, whose name this version needs",
    ]
    assert "1 pods have GPUs from an earlier version, and run on: team/a" in fields["problems"][0]
    assert "keep both: team/a" in fields["notes"][0]
    assert "sharedgpu/cell_id" in text
    assert text.endswith("next: kubeshare migrate kubeshare --apply")
    shown, _, _ = PAGE.partition("```console\n")[2].partition("…")
    assert text.startswith(shown.rstrip(" "))
    assert server.writes == 0


def test_version_1_is_stopped_and_its_running_pods_keep_what_serves_them() -> None:
    server = version_1()
    _, fields, code = migrate(server, "apply")
    assert (code, fields["steps"]) == (1, [])
    assert fields["next"] == "kubeshare migrate kubeshare --plan"
    assert pod(server, "kubeshare-scheduler") is None
    assert pod(server, "kubeshare-device-manager") is None
    assert pod(server, "a", "team") is not None
    assert pod(server, PLACEHOLDER) is not None
    assert not daemon_is_stopped(server)
    sharepod = server.stored(SHAREPODS, "a", "team")
    assert sharepod is not None
    assert sharepod["status"] == {}
    assert sharepod["spec"]["nodeName"] == "n1"
    crd = server.stored(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    assert crd is not None
    assert crd["spec"]["preserveUnknownFields"] is False
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}
    assert server.stored(CLUSTER_ROLE_BINDINGS, "kubeshare-scheduler") is None


def test_once_the_pods_have_ended_the_rest_of_version_1_goes() -> None:
    server = version_1()
    migrate(server, "apply")
    server.change(PODS, "a", "team", lambda raw: raw["status"].update(phase="Succeeded"))
    _, fields, code = migrate(server, "apply")
    assert (code, fields["steps"], fields["problems"]) == (0, [], [])
    assert fields["next"] == "kubeshare install"
    assert pod(server, PLACEHOLDER) is None
    assert pod(server, "a", "team") is not None
    assert daemon_is_stopped(server)
    writes = server.writes
    assert migrate(server, "apply")[2] == 0
    assert server.writes == writes


def test_a_pod_of_an_unknown_gpu_keeps_all_placeholders_of_its_node() -> None:
    server = version_1()
    server.change(
        PODS, "a", "team", lambda raw: raw["metadata"]["annotations"].pop("kubeshare/GPUID")
    )
    migrate(server, "apply")
    assert pod(server, PLACEHOLDER) is not None


def test_a_controller_that_does_not_end_is_waited_for_and_the_kind_is_left() -> None:
    server = version_1()
    server.change(
        PODS,
        "kubeshare-device-manager",
        KUBE_SYSTEM,
        lambda raw: raw["metadata"].update(finalizers=["example.org/kept"]),
    )
    with pytest.raises(WaitedError, match="a former controller still runs after 60 s"):
        migrate(server, "apply")
    crd = server.stored(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    assert crd is not None
    assert crd["spec"]["preserveUnknownFields"] is True


def test_a_version_that_is_stored_and_not_known_is_a_problem() -> None:
    server = version_1(running=False)
    server.change(
        CUSTOM_RESOURCE_DEFINITIONS,
        CRD,
        "",
        lambda raw: raw["status"].update(storedVersions=["v1alpha1", "v1"]),
    )
    _, fields, code = migrate(server, "apply")
    assert code == 1
    assert fields["problems"][0].startswith("SharePods may be stored as v1alpha1")
    crd = server.stored(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    assert crd is not None
    assert crd["spec"]["preserveUnknownFields"] is True


def test_a_sharepod_that_this_version_refuses_is_named_by_its_field() -> None:
    server = version_1(running=False)
    server.change(
        SHAREPODS,
        "a",
        "team",
        lambda raw: raw["metadata"]["annotations"].update({"kubeshare/gpu_request": "NaN"}),
    )
    _, fields, code = migrate(server, "plan")
    assert code == 1
    assert fields["problems"][0].startswith("SharePod team/a: kubeshare/gpu_request")


def test_of_version_2_only_the_scheduler_is_stopped_while_its_pods_run() -> None:
    server = version_2()
    _, fields, code = migrate(server, "apply")
    assert code == 1
    assert replicas(server, "kubeshare-scheduler") == 0
    assert replicas(server, "kubeshare-aggregator") == 1
    assert not daemon_is_stopped(server)
    assert not daemon_is_stopped(server, "kubeshare-collector")
    assert "team/p" in fields["problems"][0]
    assert "only version 2's scheduler would place team/w" in fields["problems"][1]
    assert pod(server, "p", "team") is not None
    assert pod(server, "w", "team") is not None


def test_both_an_old_scheduler_and_ours_are_a_problem() -> None:
    server = version_2(running=False)
    server.seed(
        DEPLOYMENTS,
        {"metadata": {"name": "kubeshare-scheduler", "namespace": NAMESPACE}, "spec": {}},
    )
    _, fields, code = migrate(server, "plan")
    assert code == 1
    assert fields["problems"][0].startswith("both an earlier version and this one run")
    assert migrate(server, "apply")[2] == 0
    with pytest.raises(MigrationError, match="run `kubeshare uninstall` first"):
        migrate(server, "back")


def test_version_2_runs_again_after_going_back() -> None:
    server = version_2(running=False)
    migrate(server, "apply")
    assert replicas(server, "kubeshare-aggregator") == 0
    assert daemon_is_stopped(server)
    migrate(server, "back")
    assert replicas(server, "kubeshare-aggregator") == replicas(server, "kubeshare-scheduler") == 1
    assert not daemon_is_stopped(server)
    assert not daemon_is_stopped(server, "kubeshare-collector")
    assert server.stored(CLUSTER_ROLE_BINDINGS, "kubeshare-scheduler") is not None
    assert migrate(server, "back")[0] == "Nothing is left to undo."


def test_going_back_to_version_1_opens_the_kind_and_names_the_manifests() -> None:
    server = version_1(running=False)
    migrate(server, "apply")
    _, fields, code = migrate(server, "back")
    assert code == 0
    assert fields["next"] == [
        "kubectl apply -f deploy/device-manager.yaml",
        "kubectl apply -f deploy/scheduler.yaml",
    ]
    crd = server.stored(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    assert crd is not None
    [version] = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert "subresources" not in version


def test_after_an_uninstallation_the_kind_is_made_and_the_rights_are_named() -> None:
    server = version_1(running=False)
    migrate(server, "apply")
    server.remove(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    server.remove(CLUSTER_ROLES, "kubeshare-scheduler")
    assert migrate(server, "back")[1]["done"][0].startswith(f"the CRD {CRD} is there again")
    crd = server.stored(CUSTOM_RESOURCE_DEFINITIONS, CRD)
    assert crd is not None
    assert crd["spec"]["names"]["shortNames"] == ["shp"]
    second = version_2(running=False)
    migrate(second, "apply")
    second.remove(CLUSTER_ROLES, "kubeshare-scheduler")
    assert migrate(second, "back")[1]["next"] == ["kubectl apply -f deploy/scheduler.yaml"]


def test_a_pod_that_starts_while_the_scheduler_is_stopped_keeps_what_serves_it() -> None:
    server = version_2(running=False)

    def start() -> None:
        server.change(PODS, "p", "team", lambda raw: raw["status"].update(phase="Running"))

    started = Fault.preceded_by(start)
    server.inject(started, verb="patch", resource="deployments")
    _, fields, code = migrate(server, "apply")
    assert code == 1
    assert "team/p" in fields["problems"][0]
    assert replicas(server, "kubeshare-scheduler") == 0
    assert not daemon_is_stopped(server)
    assert replicas(server, "kubeshare-aggregator") == 1


def test_a_sharepod_of_this_version_that_is_refused_is_no_matter_of_the_former() -> None:
    server = FakeApiServer()
    metadata = {"namespace": "team", "annotations": {"kubeshare/gpu_request": "NaN"}}
    put(server, SHAREPODS, "new", metadata=metadata, spec={"containers": [{"name": "main"}]})
    assert migrate(server, "plan")[2] == 0


@scenario(n1=2)
async def test_a_sharepod_of_version_1_that_has_ended_is_not_run_again(
    cluster: FakeCluster,
) -> None:
    sharepod_with_pod(cluster.server, "default", running=False)
    cluster.start()
    await expect_sharepod_phase(cluster, "a", "Succeeded")
    await expect_no_vgpus(cluster)
    found = pod(cluster.server, "a", "default")
    assert found is not None
    assert found["metadata"]["uid"] == "uid-pod"


def test_sharepods_of_the_group_between_the_versions_are_named() -> None:
    server = FakeApiServer()
    put(server, OTHER_SHAREPODS, "between", spec={})
    _, fields, code = migrate(server, "plan")
    assert code == 1
    assert "are not converted: kube-system/between" in fields["problems"][0]


def test_an_installation_beside_an_earlier_version_names_the_command() -> None:
    server = version_1()

    async def install() -> None:
        async with server.client("administrator") as client:
            loaded = manifests.load(manifests.Options())
            with pytest.raises(rollout.RolloutError, match="`kubeshare migrate kubeshare --plan`"):
                await rollout.install(client, loaded, deadline=1, say=lambda _: None)

    run_virtual(install())
    assert server.writes == 0


def test_one_of_the_three_modes_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "kubeshare"]) == 2
    assert "give one of --plan, --apply and --back" in capsys.readouterr().err
