"""Accounts of pods that share a GPU, beside its own log, while every program is restarted."""

from collections.abc import Mapping

import pytest

from e2e.space import Space
from e2e.stage import (
    DEVICE_MANAGER,
    NODE_AGENT,
    SCHEDULER,
    TOKEN_DAEMON,
    Place,
    Raw,
    Stage,
    eventually,
)
from kubeshare.api.types.constants import NAMESPACE
from wakeups import Wakeups

pytestmark = pytest.mark.lab

AFFINITY = "accounts"
# The GPU's log has pods by name, also those of tests before.
SHARES = {"account-a": "0.5", "account-b": "0.3"}
PLAIN = "account-plain"
PODS = (*SHARES, PLAIN)
STOP = "/tmp/stop"
# With kernels in flight while a busy machine lets it wait; it stays after its last kernel.
WORK = f"burn --inflight 32 & until [ -e {STOP} ]; do sleep 0.2; done; kill $!; wait; sleep 3600"
TOLERANCE = 0.001
"""Of what was charged, from what the GPU worked by its own log."""
ENDS_NS = 250_000_000
"""What else is charged to a pod: until its first kernel, and from its last one to its end. It is
some milliseconds on a machine with nothing else to do, and longer by what this one loses."""
BEFORE_DAEMON_IS_BACK_NS = 50_000_000
"""What a pod may use between the end of a daemon and its connection to the next one."""


def start(space: Space) -> Place:
    """Two SharePods and a plain pod that keep one GPU busy."""
    job = ("sh", "-c", WORK)
    for name, request in SHARES.items():
        space.share(name, {"request": request, "affinity": AFFINITY}, job)
    space.plain(PLAIN, "0.2", job, annotations={"kubeshare.nthu/affinity": AFFINITY})
    (place, *others) = [space.ready(name) for name in SHARES]
    assert others == [place] * len(others)
    space.stage.works_for(place, *PODS)
    return place


def restart_what_places(stage: Stage) -> None:
    """End the scheduler and the device manager; they may come back while the others are ended."""
    for component in (SCHEDULER, DEVICE_MANAGER):
        stage.delete_pod(component)


def restart_agent_and_kubelet(stage: Stage, place: Place) -> None:
    """Kill both."""
    before = stage.containers(NODE_AGENT, place.node)
    stage.kill_process(NODE_AGENT, place.node)
    stage.works_for(place, *PODS)
    stage.until_ready(NODE_AGENT, place.node, but=before)
    stage.lab.restart_component(f"{place.node}/kubelet")
    stage.works_for(place, *PODS)


def roll_daemon(stage: Stage, place: Place) -> None:
    """Replace the token daemon as an upgrade does: the next one stands by."""
    which = (f"daemonset/kubeshare-{TOKEN_DAEMON}", "-n", NAMESPACE)
    before = stage.containers(TOKEN_DAEMON, place.node)
    for name in [pod["metadata"]["name"] for pod in stage.system_pods(TOKEN_DAEMON)]:
        stage.keep_log(name)
    stage.kubectl("rollout", "restart", *which)
    stage.kubectl("rollout", "status", *which, "--timeout=180s")
    stage.until_ready(TOKEN_DAEMON, place.node, but=before)
    until_known(stage, place)


def kill_daemon(stage: Stage, place: Place) -> None:
    """Kill the token daemon, with none that stands by."""
    before = stage.containers(TOKEN_DAEMON, place.node)
    stage.kill_process(TOKEN_DAEMON, place.node)
    stage.works_for(place, *PODS)
    stage.until_ready(TOKEN_DAEMON, place.node, but=before)
    until_known(stage, place)


def until_known(stage: Stage, place: Place) -> None:
    """Wait until the pods have their turns of the present daemon."""
    eventually(lambda: set(PODS) <= set(stage.top(place)), "the daemon to know all pods")
    stage.works_for(place, *PODS)


def stop(stage: Stage, space: Space, place: Place) -> tuple[dict[str, int], Mapping[str, int]]:
    """End the work of all pods; what the daemon charged each, and what the GPU worked, in ns."""
    for name in PODS:
        space.run(name, "touch", STOP)
    eventually(
        lambda: not any(stage.processes(name) for name in PODS), "the processes to leave the GPU"
    )

    def charged() -> dict[str, int]:
        seen = stage.top(place)
        is_over = all(seen[name]["state"] == "idle" for name in PODS)
        return {name: int(seen[name]["chargedNs"]) for name in PODS} if is_over else {}

    settled = eventually(charged, "all turns to end", explain=lambda: str(stage.top(place)))
    return settled, stage.meter(place, PODS).sample().busy_ns


def accounts(stage: Stage, space: Space) -> dict[str, Raw]:
    """The accounts of all pods once they have ended, by pod; the pods are deleted."""
    for name in SHARES:
        space.delete("sharepod", name)
    space.delete("pod", PLAIN)
    path = f"/apis/kubeshare.nthu/v1/namespaces/{space.name}/shareusages"

    def ended() -> dict[str, Raw]:
        found = {one["status"]["pod"]: one["status"] for one in stage.items(path)}
        return found if len(found) == len(PODS) and all(map(is_over, found.values())) else {}

    def is_over(account: Raw) -> bool:
        return bool(account.get("ended"))

    return eventually(ended, "the accounts to end", explain=lambda: str(stage.items(path)))


def used_ns(account: Raw) -> int:
    (share,) = account["shares"]
    return int(share["usedNs"])


def test_accounts_are_what_the_gpu_worked_though_every_program_was_restarted(
    stage: Stage, space: Space
) -> None:
    with Wakeups() as wakeups:
        place = start(space)
        restart_what_places(stage)
        restart_agent_and_kubelet(stage, place)
        roll_daemon(stage, place)
        charged, worked = stop(stage, space, place)
    for component in (SCHEDULER, DEVICE_MANAGER):
        stage.until_ready(component)
    found = accounts(stage, space)

    assert {name: used_ns(found[name]) for name in PODS} == charged
    assert all(account["complete"] for account in found.values())
    lost_ns = wakeups.lost_seconds * 1e9
    for name in PODS:
        missing_ns = worked[name] * (1 - TOLERANCE) - charged[name]
        assert missing_ns < BEFORE_DAEMON_IS_BACK_NS + lost_ns, (name, charged, worked)
        beyond_ns = charged[name] - worked[name] * (1 + TOLERANCE)
        assert beyond_ns < ENDS_NS + lost_ns, (name, charged, worked)


def test_accounts_say_that_they_lack_the_time_without_a_token_daemon(
    stage: Stage, space: Space
) -> None:
    place = start(space)
    kill_daemon(stage, place)
    charged, _ = stop(stage, space, place)
    found = accounts(stage, space)

    assert {name: used_ns(found[name]) for name in PODS} == charged
    assert not any(account.get("complete") for account in found.values())
