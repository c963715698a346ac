"""An installation for some namespaces allows these, and bounds their SharePods once."""

import pytest
import yaml

from kubeshare.api.configuration import Configuration
from kubeshare.cli.main import main
from kubeshare.install import manifests, rollout
from kubeshare.kube.resources import NAMESPACES, RESOURCE_QUOTAS
from kubeshare.simulator.control import FakeApiServer, run_virtual

POLICY = "kubeshare-only-namespaces"
COUNT = "count/sharepods.kubeshare.nthu"
KINDS = {"Namespace", "ResourceQuota"}


def named(loaded: list[manifests.Manifest], name: str) -> list[str]:
    return [one["kind"] for one in loaded if one["metadata"]["name"] == name]


def test_all_namespaces_may_unless_some_are_named() -> None:
    assert named(manifests.load(manifests.Options()), POLICY) == []


def test_what_is_removed_has_the_policy_and_nothing_of_users() -> None:
    loaded = manifests.load(manifests.Options(only_namespaces=()))
    assert named(loaded, POLICY) == [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    assert "ResourceQuota" not in {one["kind"] for one in loaded}


def test_each_is_allowed_beside_its_own_labels_and_keeps_the_quota_that_it_has() -> None:
    loaded = manifests.load(manifests.Options(only_namespaces=("a", "b")))
    theirs = [one for one in loaded if one["kind"] in KINDS]

    async def main() -> None:
        server = FakeApiServer()
        server.seed(NAMESPACES, {"metadata": {"name": "a", "labels": {"team": "a"}}})
        server.seed(
            RESOURCE_QUOTAS,
            {"metadata": {"name": "kubeshare", "namespace": "a"}, "spec": {"hard": {COUNT: "7"}}},
        )
        async with server.client("administrator") as client:
            for _ in range(2):
                await rollout.install(client, theirs, deadline=1, say=lambda _: None)
        found = server.stored(NAMESPACES, "a", "")
        assert found is not None
        assert found["metadata"]["labels"] == {"team": "a", "kubeshare.nthu/shares": "allowed"}
        hard = {
            namespace: quota["spec"]["hard"][COUNT]
            for namespace in "ab"
            if (quota := server.stored(RESOURCE_QUOTAS, "kubeshare", namespace))
        }
        assert hard == {"a": "7", "b": str(manifests.MAX_SHAREPODS)}

    run_virtual(main())


def test_a_gang_of_the_largest_size_fits_into_the_quota() -> None:
    assert Configuration().gang_members <= manifests.MAX_SHAREPODS


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--only-namespace", "a", "--only-namespace", "b", "--dry-run"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    quotas = [one["metadata"]["namespace"] for one in printed if one["kind"] == "ResourceQuota"]
    assert quotas == ["a", "b"]
    assert named(printed, "a") == ["Namespace"]


def test_no_name_is_an_error_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--only-namespace", "", "--dry-run"]) == 2
    assert "--only-namespace" in capsys.readouterr().err
