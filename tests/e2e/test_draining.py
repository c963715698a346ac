"""A drain: budgets hold, those who share move, and placeholders go last."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.manifests import budget, deployment, template
from e2e.space import Space
from e2e.stage import DEVICE_MANAGER, SCHEDULER, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE, placeholder_name
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab


def evict(stage: Stage, namespace: str, name: str) -> None:
    """Ask the API server to evict a pod, as ``kubectl drain`` does."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    stage.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def ready(space: Space, app: str) -> int:
    """How many pods of a workload are ready."""
    conditions = [pod["status"].get("conditions", []) for pod in space.pods(app=app)]
    return sum(
        ("Ready", "True") in [(one["type"], one["status"]) for one in each] for each in conditions
    )


@pytest.fixture
def drained(stage: Stage) -> Iterator[None]:
    """Nodes take pods again afterwards, and KubeShare's programs are there."""
    yield
    stage.kubectl("uncordon", *(node.name for node in stage.lab.nodes))
    for component in (SCHEDULER, DEVICE_MANAGER):
        stage.until_ready(component)


@pytest.mark.usefixtures("drained")
def test_a_drain_moves_those_who_share_as_their_budget_allows_and_placeholders_last(
    stage: Stage, space: Space
) -> None:
    space.create(deployment("serve", template("serve", "0.3"), replicas=2))
    space.create(budget("serve", 1))
    space.until_running(2, app="serve")
    ((gpuid, held),) = space.parts().items()
    assert len(held) == 2
    (here,) = {pod["spec"]["nodeName"] for pod in space.pods()}
    kept = placeholder_name(gpuid)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    eventually(
        lambda: (pod := stage.find(pods, kept)) and pod["status"]["phase"] == "Running",
        "the placeholder to run",
    )
    with pytest.raises(LabError, match="disruption budget"):
        evict(stage, NAMESPACE, kept)
    least: list[int] = []

    with ThreadPoolExecutor() as pool:
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        done = pool.submit(stage.kubectl, "drain", here, *flags)

        def over() -> bool:
            least.append(ready(space, "serve"))
            return done.done()

        eventually(over, "the drain to end", seconds=200, explain=stage.describe_system)
    done.result()

    assert min(least) >= 1, "the budget keeps one"
    assert kept not in stage.placeholders()
    # The device manager may have been on this node, and have to be followed by another.
    eventually(
        lambda: not [one for one in stage.vgpus() if one["spec"]["nodeName"] == here],
        "its vGPUs to go",
        explain=lambda: str(stage.vgpus()),
    )
    moved = space.until_running(2, app="serve")
    assert {one["podUid"] for parts in space.parts().values() for one in parts} == moved
