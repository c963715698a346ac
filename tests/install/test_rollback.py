"""An earlier version is not installed over holders that it does not understand."""

import copy
from typing import Any

import pytest

from fakes.manifests import holder, sharepod, vgpu
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.install import manifests, rollout
from kubeshare.install.rollback import NAMED
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

Raw = dict[str, Any]

LOADED = [
    one for one in manifests.load(manifests.Options()) if one["kind"] == "CustomResourceDefinition"
]


def earlier(*absent: str) -> list[Raw]:
    """The kinds of a version whose holders do not have these fields."""
    kinds = copy.deepcopy(LOADED)
    [ours] = [kind for kind in kinds if kind["spec"]["names"]["kind"] == "VGPU"]
    schema = ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in absent:
        del schema["properties"]["status"]["properties"]["holders"]["items"]["properties"][field]
    return kinds


def install(kinds: list[Raw], *holders: Raw) -> tuple[str, set[str]]:
    """Installs kinds over these holders: how that ends, and the verbs of its requests.

    The demand ``sharepod`` is the uid of a SharePod, any other one that of a plain pod.
    """
    server = FakeApiServer()
    seeded = server.seed(SHAREPODS, sharepod("shared", metadata={"namespace": "default"}))
    uids = {"sharepod": seeded["metadata"]["uid"]}
    held = [each | {"demand": uids.get(each["demand"], each["demand"])} for each in holders]
    server.seed(VGPUS, vgpu("x", "n1", *held))

    async def run() -> str:
        async with server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError) as caught:
                # No API server establishes them, so that this never ends well.
                await rollout.install(client, kinds, deadline=1, say=lambda _: None)
            assert caught.value.exit_code == 1
            return str(caught.value)

    message = run_virtual(run())
    return message, {each.verb for each in server.requests}


def test_holders_of_a_later_version_are_named_and_nothing_is_changed() -> None:
    message, verbs = install(
        earlier("share", "limitAloneMicros"),
        holder("1", "whole", share=""),
        holder("2", "learner", share="learn", limitAloneMicros=0),
        holder("2", "learner", share="serve"),
        holder("3", "burster", share="", limitAloneMicros=1_000_000),
    )
    assert message.startswith(
        "nothing was changed: 2 SharePods or pods hold shares that this version does not understand"
        " (limitAloneMicros, share): default/burster, default/learner. "
    )
    assert "`kubectl delete pod burster -n default`" in message
    assert verbs == {"list", "get"}


@pytest.mark.parametrize(("demand", "kind"), [("sharepod", "sharepod"), ("another", "pod")])
def test_the_kind_to_delete_is_that_of_the_demand(demand: str, kind: str) -> None:
    message, _ = install(earlier("share"), holder(demand, "shared", share="s"))
    assert f"`kubectl delete {kind} shared -n default`" in message


def test_a_message_names_some_and_counts_the_others() -> None:
    many = [holder(str(each), f"p{each:02}", share="s") for each in range(NAMED + 2)]
    message, _ = install(earlier("share"), *many)
    assert "p09 and 2 more." in message
    assert "p10" not in message


def test_holders_that_both_versions_understand_prevent_nothing() -> None:
    message, verbs = install(earlier("share"), holder("1", share="", limitAloneMicros=1))
    assert "does not serve it yet" in message
    assert "patch" in verbs
    assert "does not serve it yet" in install(LOADED, holder("1", share="learn"))[0]


def test_a_cluster_without_kubeshare_has_no_holders() -> None:
    server = FakeApiServer()
    server.inject(Fault.answer(404), verb="list", resource="vgpus")

    async def run() -> None:
        async with server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError, match="does not serve it yet"):
                await rollout.install(client, earlier("share"), deadline=1, say=lambda _: None)

    run_virtual(run())
