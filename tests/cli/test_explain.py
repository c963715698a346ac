"""`kubeshare explain` on a cluster: the scheduler's own answer, and what would change it."""

import json

import pytest

from cluster_fake import World, expect_scheduled, in_world
from kubeshare.cli import explain as command
from kubeshare.cli.explain import Finding, NothingToExplainError, find_out
from kubeshare.cli.main import main
from kubeshare.core.policies import policy
from kubeshare.kube.resources import RESOURCE_QUOTAS

LOCALITY = policy("locality")


async def explained(world: World, name: str) -> Finding:
    async with world.server.api() as api:
        return await find_out(api, LOCALITY, name, "default")


def test_one_that_waits_is_told_why_and_whose_leaving_would_help() -> None:
    async def story(world: World) -> None:
        world.start("scheduler")
        world.share("a", "0.7")
        await world.until(lambda: world.condition("a", "Scheduled"))
        world.share("b", "0.6")
        await world.until(lambda: world.events("b"))
        gpuid = expect_scheduled(world, "a").gpuid
        before = world.server.requests[:]
        finding = await explained(world, "b")
        assert finding.held == ()
        assert finding.decision.outcome == "pending"
        assert finding.decision.reasons[f"n1/{gpuid}"] == "compute 0.3 left, 0.6 asked"
        assert finding.change is not None
        assert finding.change.words == (f"a leaves n1/{gpuid}",)
        # The same words as in the event.
        assert str(finding.change) in world.events("b")[0]
        made = world.server.requests[len(before) :]
        assert {each.verb for each in made} <= {"get", "list", "watch"}
        text = command._as_text(finding)
        assert text.splitlines()[0] == "default/b: pending"
        assert text.splitlines()[-1] == f"    it fits when a leaves n1/{gpuid}"

    in_world(story, n1=1)


def test_one_that_is_placed_is_told_where_and_why_not_elsewhere() -> None:
    async def story(world: World) -> None:
        world.start("scheduler")
        world.share("a", "0.7")
        await world.until(lambda: world.condition("a", "Scheduled"))
        world.share("b", "0.6", affinity="red")
        await world.until(lambda: world.condition("b", "Scheduled"))
        mine, other = expect_scheduled(world, "b").gpuid, expect_scheduled(world, "a").gpuid
        for name in ("b", "sharepod/b", "shp/b", "pod/b"):
            finding = await explained(world, name)
            assert finding.held == (f"n1/{mine}",)
            assert finding.decision.devices == (mine,)
            occupied = "occupied, and affinity red asks for an idle or a new vGPU"
            assert finding.decision.reasons[f"n1/{other}"] == occupied
        told = json.loads(command._as_json(finding))
        assert told["held"] == [f"n1/{mine}"]
        assert told["decision"] == "bound"

    in_world(story, n1=2)


def test_a_plain_pod_is_explained_by_what_it_says_itself() -> None:
    async def story(world: World) -> None:
        world.start()
        world.plain("a", "0.7")
        await world.until(lambda: world.running("a"))
        world.plain("b", "0.6")
        await world.until(lambda: world.pod_condition("b"))
        (gpuid,) = world.vgpus()
        assert (await explained(world, "a")).held == (f"n1/{gpuid}",)
        waits = await explained(world, "pod/b")
        assert waits.decision.reasons[f"n1/{gpuid}"] == "compute 0.3 left, 0.6 asked"

    in_world(story, n1=1)


def test_a_quota_of_the_namespace_is_told() -> None:
    async def story(world: World) -> None:
        hard = {"requests.kubeshare.nthu/gpu": "500m"}
        metadata = {"name": "gpus", "namespace": "default"}
        world.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
        world.share("a", "0.6")
        finding = await explained(world, "a")
        words = "ResourceQuota gpus allows 0.5 GPUs: 0 held, 0.6 asked"
        assert dict(finding.decision.reasons) == {"quota": words}

    in_world(story, n1=1)


def test_a_value_that_nobody_can_have_is_told_by_its_field() -> None:
    async def story(world: World) -> None:
        world.share("a", "0.7", limit="0.5")
        finding = await explained(world, "a")
        assert (finding.decision.outcome, finding.decision.field) == (
            "rejected",
            "spec.gpu.request",
        )

    in_world(story, n1=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("z", "no SharePod or pod z in namespace default"),
        ("shp/z", "no shp z in namespace default"),
        ("node/n1", "node is not a kind to explain: sharepod or pod is"),
        ("pod/whole", "default/whole asks for no part of a GPU"),
    ],
)
def test_what_cannot_be_explained_is_said(name: str, words: str) -> None:
    async def story(world: World) -> None:
        world.native_pod("whole")
        with pytest.raises(NothingToExplainError, match=words):
            await explained(world, name)

    in_world(story, n1=1)


def test_a_cluster_that_is_not_there_is_no_traceback(
    tmp_path: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["explain", "a", "--kubeconfig", f"{tmp_path}/none"]) == 3
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "kubeconfig" in captured.err


def test_a_policy_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a", "--policy", "nearest"]) == 2
    assert "policy nearest is not registered" in capsys.readouterr().err
