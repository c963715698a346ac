"""What an administrator has configured is never overwritten by an installation."""

from kubeshare.api.configuration import NAME
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests, rollout
from kubeshare.kube.resources import CONFIG_MAPS
from kubeshare.simulator.control import FakeApiServer, run_virtual

OURS = [one for one in manifests.load(manifests.Options()) if one["kind"] == "ConfigMap"]


async def install(server: FakeApiServer) -> str:
    """Install the ConfigMap, and say what is configured then."""
    async with server.client("administrator") as client:
        await rollout.install(client, OURS, deadline=1, say=lambda _: None)
    found = server.stored(CONFIG_MAPS, NAME, NAMESPACE)
    assert found is not None
    return str(found["data"]["config.yaml"])


def test_it_is_made_where_there_is_none_and_left_alone_where_there_is_one() -> None:
    async def main() -> None:
        server = FakeApiServer()
        assert "policy: onDemand" in await install(server)
        mine = {"config.yaml": "pool: {policy: hybrid}"}
        server.change(CONFIG_MAPS, NAME, NAMESPACE, lambda obj: obj.update(data=mine))
        assert await install(server) == "pool: {policy: hybrid}"

    run_virtual(main())
