"""A release is not installed over objects that are stored in versions that it does not have."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from kubeshare.install import manifests, rollout
from kubeshare.kube.resources import CLUSTER_ROLE_BINDINGS, CUSTOM_RESOURCE_DEFINITIONS
from kubeshare.simulator.control import FakeApiServer, run_virtual

Raw = dict[str, Any]

KINDS = [
    one for one in manifests.load(manifests.Options()) if one["kind"] == "CustomResourceDefinition"
]


def with_versions(kinds: list[Raw], *names: str) -> list[Raw]:
    """The kinds of a release that has these versions of SharePods."""
    changed = copy.deepcopy(kinds)
    [sharepods] = [one for one in changed if one["spec"]["names"]["kind"] == "SharePod"]
    [version] = sharepods["spec"]["versions"]
    sharepods["spec"]["versions"] = [version | {"name": name} for name in names]
    return changed


def attempt(
    release: list[Raw], *stored: str, seeds: Iterable[Raw] = ()
) -> tuple[str, FakeApiServer]:
    """Installs a release where SharePods are stored in these versions: how that ends."""
    server = FakeApiServer()
    for kind in KINDS:
        is_sharepod = kind["spec"]["names"]["kind"] == "SharePod"
        status = {"storedVersions": list(stored) if is_sharepod else ["v1"]}
        server.seed(CUSTOM_RESOURCE_DEFINITIONS, kind | {"status": status})
    for binding in seeds:
        server.seed(CLUSTER_ROLE_BINDINGS, binding)

    async def run() -> str:
        async with server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError) as caught:
                # No API server establishes them, so that this never ends well.
                await rollout.install(client, release, deadline=1, say=lambda _: None)
            return str(caught.value)

    return run_virtual(run()), server


@pytest.mark.parametrize(
    ("has", "stored", "missing"),
    [
        (["v3"], ["v1", "v2"], "v1, v2"),  # forwards, over the release that stores them anew
        (["v2"], ["v1", "v2"], "v1"),
        (["v1"], ["v1", "v2"], "v2"),  # back, from a release that stores the next version
    ],
)
def test_a_release_that_skipped_one_changes_nothing_and_says_what_is_stored(
    has: list[str], stored: list[str], missing: str
) -> None:
    message, server = attempt(with_versions(KINDS, *has), *stored)
    assert message.startswith("nothing was changed: objects may be stored in versions that this ")
    assert f"(sharepods.kubeshare.nthu in {missing})" in message
    assert "install those between in their order" in message
    assert not [each for each in server.requests if each.is_write]


@pytest.mark.parametrize(("has", "stored"), [(["v1"], ["v1"]), (["v1", "v2"], ["v1", "v2"])])
def test_a_release_that_has_all_versions_is_installed(has: list[str], stored: list[str]) -> None:
    message, server = attempt(with_versions(KINDS, *has), *stored)
    assert "nothing was changed" not in message
    assert [each for each in server.requests if each.is_write]


def test_kubeshare_in_its_former_namespace_is_told_of_first() -> None:
    """Its kinds have a version that no release of today's has; the advice is to migrate."""
    [binding, *_] = (
        one
        for one in manifests.load(manifests.Options())
        if one["kind"] == CLUSTER_ROLE_BINDINGS.kind
    )
    [subject] = binding["subjects"]
    former = binding | {"subjects": [subject | {"namespace": "kube-system"}]}
    message, _ = attempt([*KINDS, binding], "v1alpha1", "v1", seeds=[former])
    assert "kubeshare migrate kubeshare --plan" in message
