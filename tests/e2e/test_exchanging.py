"""A rolling restart of the token daemon: the next one stands by; without room for it, it waits."""

import json

import pytest

from e2e.space import REST, Space
from e2e.stage import TOKEN_DAEMON, Place, Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE

pytestmark = pytest.mark.lab

WORKLOAD = ("-n", NAMESPACE, f"daemonset/kubeshare-{TOKEN_DAEMON}")


@pytest.fixture(scope="module")
def place(shared_space: Space) -> Place:
    """Where one runs that shares."""
    shared_space.share("a", {"request": "0.5", "memory": "1Gi"})
    return shared_space.ready("a")


def restart(stage: Stage) -> None:
    stage.kubectl("rollout", "restart", *WORKLOAD)


def until_rolled_out(stage: Stage) -> None:
    stage.kubectl("rollout", "status", *WORKLOAD, "--timeout=180s")


def said(stage: Stage, node: str) -> list[Raw]:
    """What happened to the token daemon of a node, in its own words: the lines of its log."""
    (pod,) = stage.system_pods(TOKEN_DAEMON, node)
    log = stage.kubectl("logs", "-n", NAMESPACE, pod["metadata"]["name"])
    return [json.loads(line) for line in log.splitlines()]


def assert_stood_by_compiled(stage: Stage, node: str) -> None:
    """See that a node's token daemon chose the compiled handover, and then stood by."""
    chosen, then, *_ = said(stage, node)
    assert (chosen["event"], chosen["compiled"]) == ("code chosen", True), chosen["reason"]
    assert then["event"] == "standing by"


def millicores(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else 1000 * int(quantity)


def going(stage: Stage, name: str) -> list[str]:
    """The names of the pods of a node that are being deleted."""
    return [
        pod["metadata"]["name"]
        for pod in stage.items("/api/v1/pods")
        if pod["spec"].get("nodeName") == name and "deletionTimestamp" in pod["metadata"]
    ]


def free_millicores(stage: Stage, name: str) -> int:
    """How much CPU of a node nobody has asked for, once all have gone that are about to go."""
    node = stage.find("/api/v1/nodes", name)
    assert node is not None
    eventually(lambda: not going(stage, name), "pods that end to be gone")
    asked = [
        container.get("resources", {}).get("requests", {}).get("cpu", "0")
        for pod in stage.items("/api/v1/pods")
        if pod["spec"].get("nodeName") == name
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
        for container in pod["spec"]["containers"]
    ]
    return millicores(node["status"]["allocatable"]["cpu"]) - sum(map(millicores, asked))


def without_room(stage: Stage) -> str:
    """Why a token daemon is on no node; empty where all are on one."""
    unbound: list[Raw] = [pod for pod in stage.system_pods(TOKEN_DAEMON) if not _is_bound(pod)]
    conditions = [one for pod in unbound for one in pod["status"].get("conditions", [])]
    return " ".join(one["message"] for one in conditions if one["type"] == "PodScheduled")


def _is_bound(pod: Raw) -> bool:
    return "nodeName" in pod["spec"]


def test_the_next_token_daemon_is_there_before_the_last_one_ends(
    stage: Stage, shared_space: Space, place: Place
) -> None:
    lives = shared_space.lives("a")

    restart(stage)
    until_rolled_out(stage)

    assert_stood_by_compiled(stage, place.node)
    eventually(lambda: "a" in stage.top(place), "the next daemon to know who shares")
    stage.works_for(place, "a")
    assert shared_space.lives("a") == lives


def test_where_a_node_has_no_room_for_two_the_next_one_waits_and_ends_nobody(
    stage: Stage, shared_space: Space, place: Place
) -> None:
    rest = free_millicores(stage, place.node)
    here = {"kubernetes.io/hostname": place.node}
    shared_space.pod("fills", {"cpu": f"{rest}m"}, REST, nodeSelector=here)
    shared_space.until_phase("fills", "Running")
    lives = {name: shared_space.lives(name) for name in ("a", "fills")}

    restart(stage)

    why = eventually(lambda: without_room(stage), "the next daemon to have no room")
    assert "Insufficient cpu" in why
    assert "preemptionPolicy=Never" in why, "kube-scheduler makes room by nobody's end"
    eventually(lambda: "a" in stage.top(place), "the last one to serve on")
    stage.works_for(place, "a")
    assert {name: shared_space.lives(name) for name in lives} == lives
    shared_space.delete("pod", "fills")
    until_rolled_out(stage)
    assert_stood_by_compiled(stage, place.node)
    assert shared_space.lives("a") == lives["a"]
