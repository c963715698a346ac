"""An installation for some namespaces allows these, and bounds their SharePods once."""

import pytest
import yaml

from kubeshare.api.configuration import Configuration
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.cli.main import main
from kubeshare.install import manifests, rollout
from kubeshare.kube.resources import NAMESPACES, RESOURCE_QUOTAS, Raw
from kubeshare.simulator.control import FakeApiServer, ObjectPath, run_virtual

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


def created(counted_from: int) -> tuple[int, list[str]]:
    """Installs a quota: how often it was created, and what was said.

    Args:
        counted_from: Kubernetes counts the quotas that are created from this one on.
    """
    loaded = manifests.load(manifests.Options(only_namespaces=("a",)))
    quota = [one for one in loaded if one["kind"] == "ResourceQuota"]
    made, said = 0, list[str]()

    def count(_: ObjectPath, new: Raw | None) -> None:
        nonlocal made
        if new is None or "status" in new:
            return
        made += 1
        if made >= counted_from:
            used = {"status": {"used": {COUNT: "0"}}}
            server.change(RESOURCE_QUOTAS, "kubeshare", "a", lambda found: found.update(used))

    async def main() -> None:
        server.storage.after_change.append(count)
        async with server.client("administrator") as client:
            await rollout.install(client, quota, deadline=60, say=said.append)

    server = FakeApiServer()
    run_virtual(main())
    return made, said


def test_a_quota_that_came_before_kubernetes_knew_the_kind_is_created_again() -> None:
    assert created(counted_from=3) == (3, ["0 objects applied"] * 2 + ["1 objects applied"])


def test_that_kubernetes_does_not_count_is_told_with_what_follows() -> None:
    made, said = created(counted_from=1000)
    assert made > 3
    assert "refuses them there until it does; see `kubectl describe quota -n a`" in said[-1]


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
    assert main(["install", "--only-namespace", NAMESPACE, "--dry-run"]) == 2
    assert f"{NAMESPACE} is for KubeShare's own pods" in capsys.readouterr().err
