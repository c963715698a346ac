"""What a node says about pods that run without a holder."""

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fakes.recorder import FakeRecorder
from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import MAX_UNRECORDED_PODS
from kubeshare.kube.meta import ObjectMeta
from kubeshare.node.dra.grants import PodGrant
from kubeshare.node.dra.unrecorded_grants import EVERY_GPU, UnrecordedGrants

NODE = Node(metadata=ObjectMeta(name="n1", uid="u"))


def grant(pod: str) -> PodGrant:
    return PodGrant(f"claim-{pod}", "default", pod, f"uid-{pod}", ("rest",))


class Unrecorded:
    """The unrecorded grants of a node.

    Attributes:
        grants: claim -> the grant on disk.
        node: the Node object, once it is known.
        events: what was emitted.
        changes: how often something was added or discarded.
    """

    def __init__(self) -> None:
        self.grants: dict[str, PodGrant] = {}
        self.node: Node | None = NODE
        self.events = FakeRecorder()
        self.changes = 0
        disk: Any = self
        self.all = UnrecordedGrants(disk, cast("Any", self.events), lambda: self.node, self._count)

    def __contains__(self, claim: str) -> bool:
        return claim in self.grants

    def _count(self) -> None:
        self.changes += 1

    def add(self, pod: str, *gpus: str) -> None:
        found = self.grants[f"claim-{pod}"] = grant(pod)
        self.all.add(found, gpus)

    def notes(self) -> list[tuple[str, str, str]]:
        """Reason, type and the text before the colon of the events since the last call."""
        emitted, self.events.emitted = self.events.emitted, []
        assert all((each[0].kind, each[0].name) == ("Node", "n1") for each in emitted)
        return [(each[1], each[4], each[3].partition(",")[0]) for each in emitted]


@pytest.fixture
def unrecorded() -> Unrecorded:
    return Unrecorded()


def test_the_pods_of_each_gpu_are_named_until_they_are_recorded_or_gone(
    unrecorded: Unrecorded,
) -> None:
    unrecorded.add("b", "GPU-1")
    unrecorded.add("a", "GPU-1", "GPU-0")
    unrecorded.add("a", "GPU-0", "GPU-1")
    assert unrecorded.changes == 2
    assert "claim-a" in unrecorded.all
    both = ("default/a", "default/b")
    assert unrecorded.all.pods() == {"GPU-1": both, "GPU-0": ("default/a",)}
    registry = CollectorRegistry()
    unrecorded.all.register(registry)
    lines = generate_latest(registry).decode().splitlines()
    assert 'kubeshare_node_unrecorded_pods{gpu="GPU-1"} 2.0' in lines
    assert (
        "# HELP kubeshare_node_unrecorded_pods "
        "Pods that run on a GPU without a holder, as far as the GPUNode names them"
    ) in lines
    del unrecorded.grants["claim-b"]
    assert unrecorded.all.pods() == dict.fromkeys(("GPU-0", "GPU-1"), ("default/a",))
    assert "claim-b" not in unrecorded.all
    for _ in range(2):
        unrecorded.all.discard("claim-a")
    assert unrecorded.changes == 3
    assert unrecorded.all.pods() == {}


def test_no_gpu_names_more_pods_than_its_gpunode_may(unrecorded: Unrecorded) -> None:
    for number in range(MAX_UNRECORDED_PODS + 1):
        unrecorded.add(f"p{number}", "GPU-0")
    assert len(unrecorded.all.pods()["GPU-0"]) == MAX_UNRECORDED_PODS


def test_an_event_of_the_node_says_which_gpu_gives_no_more_shares_and_which_does_again(
    unrecorded: Unrecorded,
) -> None:
    unrecorded.node = None
    unrecorded.add("a", "GPU-1", "GPU-0")
    known = unrecorded.all.report(())
    assert known == unrecorded.all.pods()
    assert unrecorded.notes() == []
    unrecorded.node = NODE
    fenced = "pods use GPU GPU-{} by grants for which no vGPU has a holder"
    for told in ([("UnrecordedPods", "Warning", fenced.format(gpu)) for gpu in (0, 1)], []):
        assert unrecorded.all.report(()) == known
        assert unrecorded.notes() == told
    unrecorded.add("a", "GPU-1", "GPU-2")
    unrecorded.all.report(())
    assert unrecorded.notes() == [
        ("UnrecordedPods", "Warning", fenced.format(2)),
        ("Recorded", "Normal", "all pods that use GPU GPU-0 have holders: it gives shares again"),
    ]


def test_the_event_says_what_to_look_at(unrecorded: Unrecorded) -> None:
    unrecorded.add("a", "GPU-0")
    unrecorded.all.report(())
    [(_, _, action, note, _)] = unrecorded.events.emitted
    assert action == "Fencing"
    assert note.endswith(
        ", as after etcd was restored from an older snapshot: it gives no more shares until they "
        "have ended; `kubectl describe gpunode n1` names them"
    )


def test_a_grant_that_may_use_any_gpu_is_on_all_of_the_last_report(unrecorded: Unrecorded) -> None:
    unrecorded.add("a", EVERY_GPU, "GPU-gone")
    for gpus in (["GPU-0"], ["GPU-0", "GPU-1"]):
        expected = dict.fromkeys((*gpus, "GPU-gone"), ("default/a",))
        assert unrecorded.all.report(gpus) == expected
        assert unrecorded.all.pods() == expected
