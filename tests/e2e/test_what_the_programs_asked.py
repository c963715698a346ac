"""What KubeShare's programs asked of the API server, by its own audit: no less than they may.

Near the end of this folder, so it has the requests of all other tests to read too; alone
it plays a short life first, which is enough.
"""

from pathlib import Path

import pytest

from e2e.space import REST, Space
from e2e.stage import eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab.control_plane import audit
from kubeshare.simulator.control import Access, Authorizer, Permission

pytestmark = pytest.mark.lab

EXAMPLES = Path(__file__).parents[2] / "examples"
KUBESHARE = "kubeshare.nthu"
ACCOUNTS = ("kubeshare-scheduler", "kubeshare-device-manager", "kubeshare-node-agent")

RARE = {
    # tests/deploy/test_rbac_is_the_least.py has lives in which each is used.
    "kubeshare-scheduler": {
        Permission("get", KUBESHARE, "sharepods"),
        Permission("get", KUBESHARE, "vgpus"),
        Permission("get", "", "pods"),
        Permission("get", "", "persistentvolumeclaims"),
        Permission("get", "", "persistentvolumes"),
        Permission("list", "", "persistentvolumes"),
        Permission("get", "storage.k8s.io", "storageclasses"),
        Permission("create", "", "pods/eviction"),
        Permission("patch", "events.k8s.io", "events"),
    },
    "kubeshare-device-manager": {
        Permission("get", KUBESHARE, "sharepods"),
        Permission("patch", KUBESHARE, "sharepods"),
        Permission("update", KUBESHARE, "sharepods/finalizers"),
        Permission("create", KUBESHARE, "gpuquotas"),
        Permission("patch", KUBESHARE, "gpuquotas"),
        Permission("delete", KUBESHARE, "gpuquotas"),
        Permission("patch", KUBESHARE, "gpuquotas/status"),
        Permission("delete", KUBESHARE, "shareusages"),
        Permission("create", KUBESHARE, "vgpus"),
        Permission("get", KUBESHARE, "vgpus"),
        Permission("patch", KUBESHARE, "vgpus"),
        Permission("patch", KUBESHARE, "gpunodes/status"),
        Permission("get", "resource.k8s.io", "resourceclaims"),
        Permission("create", "resource.k8s.io", "resourceclaims", NAMESPACE),
        Permission("delete", "resource.k8s.io", "resourceclaims", NAMESPACE),
        Permission("get", "", "nodes"),
        Permission("get", "", "pods"),
        Permission("patch", "", "pods"),
        Permission("create", "", "pods/eviction"),
        Permission("patch", "events.k8s.io", "events"),
    },
    # tests/node/test_rights.py uses each; tests/node/device_plugin patches the status of the Node.
    "kubeshare-node-agent": {
        Permission("patch", "", "nodes/status"),
        Permission("get", KUBESHARE, "vgpus"),
        Permission("get", "", "pods"),
        Permission("create", "events.k8s.io", "events"),
        Permission("patch", "events.k8s.io", "events"),
    },
}
"""Rights that are for what does not happen in a lab by itself: used, each, in another test."""

ADVICE = (
    "nothing asked for it: take it out of manifests/rbac; or, where it is for something rare, use "
    "it in tests/deploy/test_rbac_is_the_least.py or tests/node/test_rights.py and name it in RARE"
)


@pytest.fixture(scope="module")
def requests(shared_space: Space) -> list[audit.Request]:
    """All requests of KubeShare's programs since the lab was booted, and of a short life."""
    space = shared_space
    space.share("first", {"request": "0.7", "affinity": "one"}, REST)
    space.ready("first")
    space.share("second", {"request": "0.7", "affinity": "one"}, REST)
    space.waits("second", "NoRoom")
    space.delete("sharepod", "first")
    place = space.ready("second")
    space.delete("sharepod", "second")
    eventually(lambda: not space.stage.vgpu(place.gpuid), "the vGPU to be given back")
    space.stage.kubectl("apply", "-n", space.name, "-f", str(EXAMPLES / "pod.yaml"))
    space.until_phase("notebook", "Succeeded", "Failed")
    space.stage.kubectl("delete", "-n", space.name, "-f", str(EXAMPLES / "pod.yaml"))
    return list(audit.read(space.stage.lab.layout.folder))


@pytest.fixture(scope="module")
def rights(requests: list[audit.Request]) -> dict[str, Authorizer]:
    """Account -> what it may, and what of that it used."""
    found = {name: Authorizer(manifests.load(manifests.Options()), name) for name in ACCOUNTS}
    for request in requests:
        target = request.target
        if target is None or request.refused or request.account not in found:
            continue
        resource = "/".join(part for part in (target.resource, target.subresource) if part)
        # A server-side apply of what was not there.
        made = request.verb == "patch" and request.answer.code == 201
        for verb in (request.verb, "create") if made else (request.verb,):
            asked = Access(verb, target.api_group, resource, target.namespace, target.name)
            found[request.account].allow(asked)
    return found


def test_no_program_was_refused_a_request(requests: list[audit.Request]) -> None:
    assert requests
    refused = {
        f"{each.account} may not {each.verb} {each.target}" for each in requests if each.refused
    }
    assert refused == set()


@pytest.mark.parametrize("account", ACCOUNTS)
def test_our_reading_of_the_roles_is_that_of_the_api_server(
    rights: dict[str, Authorizer], account: str
) -> None:
    assert rights[account].refused == set()


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_program_has_used_all_its_rights(rights: dict[str, Authorizer], account: str) -> None:
    unused = rights[account].unused - RARE[account]
    assert [f"{grant}: {ADVICE}" for grant in sorted(unused)] == []


def test_nothing_is_called_rare_that_no_program_may(rights: dict[str, Authorizer]) -> None:
    assert {name: rare - set(rights[name].permissions) for name, rare in RARE.items()} == {
        name: set() for name in RARE
    }
