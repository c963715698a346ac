"""What administrators expect of the manifests of programs: replicas, probes, limits, rights."""

import re
from typing import Any, Final

import pytest
import yaml

from deploy.helm import CHART
from kubeshare.install import manifests

Raw = dict[str, Any]
FOLDER: Final = CHART / "manifests"
OURS: Final = manifests.load(manifests.Options(extender=True, only_namespaces=("team",)))
CONTROLLERS: Final = [each for each in OURS if each["kind"] == "Deployment"]
NODE_PROGRAMS: Final = [each for each in OURS if each["kind"] == "DaemonSet"]
PROGRAMS: Final = [*CONTROLLERS, *NODE_PROGRAMS]
ROLES: Final = [each for each in OURS if each["kind"] in ("ClusterRole", "Role")]
GIVE_RIGHTS: Final = {"escalate", "bind", "impersonate"}


def name_of(manifest: Raw) -> str:
    return str(manifest["metadata"]["name"])


def pod_of(program: Raw) -> Raw:
    pod: Raw = program["spec"]["template"]["spec"]
    return pod


def container_of(program: Raw) -> Raw:
    [container] = pod_of(program)["containers"]
    found: Raw = container
    return found


@pytest.mark.parametrize("program", CONTROLLERS, ids=name_of)
def test_a_controller_has_a_replica_on_another_node_and_survives_a_full_cluster(
    program: Raw,
) -> None:
    assert program["spec"]["replicas"] == 2
    [spread] = pod_of(program)["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"] == program["spec"]["selector"]
    assert pod_of(program)["priorityClassName"] == "system-cluster-critical"
    [budget] = [
        each["spec"]
        for each in OURS
        if each["kind"] == "PodDisruptionBudget"
        and each["spec"]["selector"] == program["spec"]["selector"]
    ]
    assert budget["maxUnavailable"] == 1


@pytest.mark.parametrize("program", NODE_PROGRAMS, ids=name_of)
def test_a_node_program_is_on_every_node_and_is_replaced_a_few_at_a_time(program: Raw) -> None:
    assert pod_of(program)["tolerations"] == [{"operator": "Exists"}]
    rolling = program["spec"]["updateStrategy"]["rollingUpdate"]
    assert rolling in ({"maxUnavailable": 1}, {"maxSurge": "25%", "maxUnavailable": 0})
    classes = {name_of(each): each["value"] for each in OURS if each["kind"] == "PriorityClass"}
    # As high as a class of users may be: two of them are on a node while an upgrade goes on.
    classes["system-node-critical"] = 2_000_001_000
    assert classes[pod_of(program)["priorityClassName"]] >= 1_000_000_000


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_has_probes_a_port_for_metrics_and_bounds(program: Raw) -> None:
    container = container_of(program)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["metrics"] == 8080
    for probe, path in (("startup", "livez"), ("liveness", "livez"), ("readiness", "readyz")):
        asked = container[f"{probe}Probe"]["httpGet"]
        assert (asked["path"], asked["port"]) == (f"/{path}", "metrics")
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}, "a limit of CPU throttles"
    assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_cannot_write_to_its_own_files(program: Raw) -> None:
    assert container_of(program)["securityContext"]["readOnlyRootFilesystem"] is True


def test_each_folder_of_the_node_is_mounted_for_a_reason() -> None:
    for path in sorted((FOLDER / "programs").glob("*.yaml")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "hostPath:" not in line:
                continue
            before = number
            while "hostPath:" in lines[before]:
                before -= 1
            assert lines[before].lstrip().startswith("# "), f"{path.name}: why {line.strip()}?"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: f"{role['kind']} {name_of(role)}")
def test_no_role_has_a_wildcard_secrets_or_a_way_to_more_rights(role: Raw) -> None:
    for rule in role["rules"]:
        words = {word for key in rule for word in rule[key]}
        assert "*" not in words
        assert "secrets" not in rule.get("resources", ())
        assert not GIVE_RIGHTS & set(rule["verbs"])


def test_leases_are_written_by_their_program_in_one_namespace_only() -> None:
    for role in ROLES:
        for rule in role["rules"]:
            if "leases" in rule.get("resources", ()) and set(rule["verbs"]) - {"get", "list"}:
                assert role["kind"] == "Role", name_of(role)
                if "patch" in rule["verbs"]:
                    assert rule["resourceNames"] == [name_of(role)]


def test_no_account_is_an_administrator() -> None:
    bindings = [each for each in OURS if each["kind"] in ("ClusterRoleBinding", "RoleBinding")]
    assert len(bindings) >= 6
    for each in bindings:
        assert each["roleRef"]["name"].startswith("kubeshare-"), name_of(each)
        [subject] = each["subjects"]
        assert subject["kind"] == "ServiceAccount"


def test_no_file_names_an_image_that_may_change() -> None:
    for path in sorted(FOLDER.rglob("*.yaml")):
        images = re.findall(r"\bimage: (\S+)", path.read_text())
        assert set(images) <= {"kubeshare:dev"}, path.name
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"]["tag"] == ""
