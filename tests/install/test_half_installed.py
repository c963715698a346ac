"""An installation that is cut off anywhere is brought to its end by running it again."""

import asyncio
from functools import partial
from typing import Any

import pytest

import samples
from kubeshare.install import manifests, rollout
from kubeshare.install.readiness import WORKLOADS
from kubeshare.kube.client.errors import ApiError
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

Raw = dict[str, Any]

LOADED = manifests.load(manifests.Options(extender=True, only_namespaces=()))


async def play_controllers(server: FakeApiServer) -> None:
    """Serve each kind, and bring each program up, as a cluster does."""
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    while True:
        for one in LOADED:
            resource, metadata = manifests.resource_of(one), one["metadata"]
            name, namespace = metadata["name"], metadata.get("namespace", "")
            if server.stored(resource, name, namespace) is None:
                continue
            if one["kind"] == "CustomResourceDefinition":
                server.change(resource, name, namespace, lambda obj: obj.update(status=established))
            elif one["kind"] in WORKLOADS:
                server.change(resource, name, namespace, roll_out)
        await asyncio.sleep(0.1)


def roll_out(workload: Raw) -> None:
    replicas = workload["spec"].get("replicas", 1)
    workload["status"] = {
        "observedGeneration": workload["metadata"]["generation"],
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "desiredNumberScheduled": 1,
        "updatedNumberScheduled": 1,
        "numberReady": 1,
    }


def install_at_last(server: FakeApiServer, write: int, fault: Fault) -> bool:
    """Install with a fault at one write, and then again; whether there was that write."""

    async def run() -> bool:
        server.inject_at_write(write, fault)
        controllers = asyncio.create_task(play_controllers(server))
        async with server.client("administrator") as client:
            install = partial(rollout.install, client, LOADED, deadline=60, say=lambda _: None)
            try:
                await install()
            except (ApiError, rollout.RolloutError):
                await install()
                was_cut_off = True
            else:
                was_cut_off = False
        controllers.cancel()
        return was_cut_off

    return run_virtual(run())


def objects(server: FakeApiServer) -> list[Raw]:
    """What is stored of each manifest, without what the API server adds."""
    found = []
    for one in LOADED:
        metadata = one["metadata"]
        stored = server.stored(
            manifests.resource_of(one), metadata["name"], metadata.get("namespace", "")
        )
        assert stored is not None, f"{one['kind']} {metadata['name']} is missing"
        found.append({key: stored[key] for key in one if key not in ("metadata", "status")})
    return found


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after"])
def test_it_is_whole_whatever_write_was_cut_off(after: bool) -> None:
    whole = FakeApiServer()
    assert not install_at_last(whole, 10_000, Fault.reset())
    expected = objects(whole)
    for write in range(1 + after, len(LOADED) + 1, samples.count(whole=1, sample=9)):
        server = FakeApiServer()
        assert install_at_last(server, write, Fault.reset(after=after)), write
        assert objects(server) == expected
