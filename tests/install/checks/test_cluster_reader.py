"""The facts of a cluster are gathered from its API, and what may not be read is noted."""

import asyncio
from datetime import datetime, timedelta

import msgspec

from fakes.checks import NODE, WANTED, gpunode, installed, lease, node, own_slice
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE, SCHEDULER
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.cli.doctor import examine
from kubeshare.install.checks import cluster_reader
from kubeshare.install.checks.finding import Finding, Level
from kubeshare.install.manifests import resource_of
from kubeshare.kube.resources import LEASES, NODES, RESOURCE_SLICES, Raw, Resource
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.simulator.control.storage import wall_clock


def seed(server: FakeApiServer, resource: Resource[Raw], obj: object) -> None:
    server.seed(resource, msgspec.json.decode(msgspec.json.encode(obj)))


def whole_cluster() -> FakeApiServer:
    """A cluster with one node, on which KubeShare runs."""
    server = FakeApiServer()
    server.discovery.gates = {"DRAExtendedResource": True}
    now = datetime.fromisoformat(wall_clock())
    seed(server, NODES, node())
    seed(server, RESOURCE_SLICES, own_slice())
    seed(server, GPUNODES, gpunode())
    server.seed(
        LEASES, {**_raw(lease(NODE, renewed=now)), "metadata": _in("kube-node-lease", NODE)}
    )
    for name in (SCHEDULER, DEVICE_MANAGER):
        seed(server, LEASES, lease(name, renewed=now))
    for manifest in WANTED:
        server.seed(resource_of(manifest), installed(manifest))
    return server


def _raw(obj: object) -> Raw:
    decoded: Raw = msgspec.json.decode(msgspec.json.encode(obj))
    return decoded


def _in(namespace: str, name: str) -> Raw:
    return {"namespace": namespace, "name": name}


def findings(server: FakeApiServer) -> list[Finding]:
    async def main() -> list[Finding]:
        async with server.client("administrator") as client:
            return await examine(client)

    return run_virtual(main())


def bad(found: list[Finding]) -> list[tuple[str, Level]]:
    return [(each.check, each.level) for each in found if each.level is not Level.OK]


def test_a_cluster_with_a_whole_installation_is_fine_but_for_this_machines_clock() -> None:
    # The fake API server lives in virtual time.
    server = whole_cluster()
    assert bad(findings(server)) == [("clocks", Level.WARN)]
    assert server.writes == 0


def test_a_cluster_without_an_installation_is_examined_alone() -> None:
    server = FakeApiServer()
    seed(server, NODES, node())
    found = findings(server)
    assert bad(found) == [("clocks", Level.WARN), ("KubeShare", Level.WARN)]
    assert found[-1].seen == "it is not installed on this cluster"


def test_kinds_that_are_not_served_are_named_with_their_version() -> None:
    server = whole_cluster()
    server.discovery.unserved |= {"DeviceClass", "ResourceClaim"}
    [kinds] = [each for each in findings(server) if each.check == "API kinds"]
    assert kinds.level is Level.FAIL
    assert "DeviceClass (resource.k8s.io/v1), ResourceClaim (resource.k8s.io/v1)" in kinds.seen


def test_what_may_not_be_read_is_a_warning_and_the_rest_is_judged() -> None:
    server = whole_cluster()
    forbidden = Fault.answer(403)
    server.inject(forbidden, verb="list", resource="mutatingwebhookconfigurations")
    server.inject(forbidden, verb="list", resource="validatingadmissionpolicies")
    found = findings(server)
    assert {"webhooks", "admission policies", "programs"} <= {name for name, _ in bad(found)}
    assert all(each.level is not Level.FAIL for each in found)


def test_the_clock_of_the_server_is_compared_with_the_middle_of_the_request() -> None:
    async def main() -> float:
        server = FakeApiServer(seconds=0.0)
        there = datetime.fromisoformat(wall_clock())
        async with server.client() as client:
            facts = await cluster_reader.read_required(
                client, WANTED, lambda: there - timedelta(seconds=30)
            )
        await asyncio.sleep(0)
        return facts.server.ahead_seconds

    assert 30 <= run_virtual(main()) <= 31.5


def test_an_installed_object_of_the_namespace_is_found() -> None:
    async def main() -> bool:
        server = whole_cluster()
        async with server.client() as client:
            facts = await cluster_reader.read_platform(
                client, WANTED, lambda: datetime.fromisoformat(wall_clock())
            )
        return facts.namespace_labels["kubernetes.io/metadata.name"] == NAMESPACE

    assert run_virtual(main())
