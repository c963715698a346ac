"""What is known of a pod's volumes, and when it is read again."""

import asyncio
from typing import Any

import pytest

from fakes.cluster.storage import Storage
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.types.core_v1 import Node
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PERSISTENT_VOLUMES
from kubeshare.scheduler import volume_binding
from kubeshare.scheduler.volume_binding import MAX_RECHECK_SECONDS, VolumeBinder
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

BOTH = Eligible(frozenset({"n1", "n2"}), {})


class Claims:
    """The volumes of pods on two nodes."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.storage = Storage(self.server)
        nodes: Store[Node] = Store()
        for name in ("n1", "n2"):
            nodes.put(Node(metadata=ObjectMeta(name=name, uid=name)))
        self.binder = VolumeBinder(self.server.client(), nodes)

    async def refresh(self, *claims: str, uid: str = "a") -> RequeueAfter | None:
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        spec: dict[str, Any] = {"volumes": volumes}
        metadata = ObjectMeta(name=f"pod-{uid}", namespace="default", uid=uid)
        return await self.binder.refresh(metadata, spec)

    def nodes(self, uid: str = "a") -> set[str]:
        return set(self.binder.filter(BOTH, uid).nodes)

    @property
    def reads(self) -> int:
        return len(self.server.requests)


def test_a_pod_without_claims_may_run_anywhere_and_nothing_is_read() -> None:
    async def main() -> None:
        claims = Claims()
        assert await claims.refresh() is None
        assert claims.nodes() == {"n1", "n2"}
        assert claims.binder.not_ready("a") == ""
        assert claims.reads == 0

    run_virtual(main())


def test_bound_claims_are_read_once_and_leave_the_nodes_that_reach_all_volumes() -> None:
    async def main() -> None:
        claims = Claims()
        claims.storage.bound("one", "n1")
        claims.storage.bound("anywhere", "n1")
        claims.server.change(PERSISTENT_VOLUMES, "anywhere", "", lambda volume: volume.pop("spec"))
        assert await claims.refresh("one", "anywhere") is None
        found = claims.binder.filter(BOTH, "a")
        assert found.nodes == {"n1"}
        assert dict(found.refusals) == {"n2": "it does not reach volume one"}
        assert claims.reads == 4
        await asyncio.sleep(10 * MAX_RECHECK_SECONDS)
        assert await claims.refresh("one", "anywhere") is None
        assert claims.reads == 4

    run_virtual(main())


def test_a_claim_that_does_not_exist_yet_is_looked_for_again() -> None:
    async def main() -> None:
        claims = Claims()
        assert await claims.refresh("data") is None
        assert claims.nodes() == {"n1", "n2"}
        claims.storage.bound("data", "n2")
        await asyncio.sleep(MAX_RECHECK_SECONDS - 1)
        await claims.refresh("data")
        assert claims.nodes() == {"n1", "n2"}
        await asyncio.sleep(1)
        assert await claims.refresh("data") is None
        assert claims.nodes() == {"n2"}

    run_virtual(main())


def test_a_claim_that_has_to_be_bound_is_read_less_and_less() -> None:
    async def main() -> None:
        claims = Claims()
        claims.storage.kind("fast", waits=False)
        claims.storage.claim("data", "fast")
        waits = []
        for _ in range(9):
            again = await claims.refresh("data")
            assert again is not None
            waits.append(again.seconds)
            assert claims.binder.not_ready("a") == "its claim data is bound to no volume yet"
            await asyncio.sleep(again.seconds)
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        claims.storage.bound("data", "n1")
        assert await claims.refresh("data") is None
        assert claims.binder.not_ready("a") == ""
        assert claims.nodes() == {"n1"}

    run_virtual(main())


@pytest.mark.parametrize("storage", ["gone", ""])
def test_a_claim_of_no_class_has_to_be_bound(storage: str) -> None:
    async def main() -> None:
        claims = Claims()
        claims.storage.claim("data", storage)
        assert await claims.refresh("data") == RequeueAfter(1)
        assert claims.binder.not_ready("a") == "its claim data is bound to no volume yet"

    run_virtual(main())


def test_volumes_that_are_free_now_are_looked_at_again() -> None:
    async def main() -> None:
        claims = Claims()
        claims.storage.kind("disk", waits=True)
        claims.storage.claim("data", "disk")
        assert await claims.refresh("data") == RequeueAfter(1)
        words = "no volume of class disk is free for its claim data"
        assert claims.binder.not_ready("a") == words
        claims.storage.free("here", "n1", "disk")
        await asyncio.sleep(1)
        assert await claims.refresh("data") == RequeueAfter(MAX_RECHECK_SECONDS)
        assert claims.binder.not_ready("a") == ""
        found = claims.binder.filter(BOTH, "a")
        assert found.nodes == {"n1"}
        why = "it reaches no free volume of class disk for its claim data"
        assert dict(found.refusals) == {"n2": why}
        claims.storage.free("there", "n2", "disk")
        await asyncio.sleep(20)
        assert await claims.refresh("data") == RequeueAfter(MAX_RECHECK_SECONDS - 20)
        await asyncio.sleep(40)
        await claims.refresh("data")
        assert claims.nodes() == {"n1", "n2"}

    run_virtual(main())


def test_a_class_that_makes_volumes_leaves_the_nodes_of_its_topologies() -> None:
    async def main() -> None:
        claims = Claims()
        zone = {"key": "zone", "values": ["there"]}
        there = [{"matchLabelExpressions": [zone]}]
        claims.storage.kind("zonal", waits=True, provisioner="csi", allowedTopologies=there)
        claims.storage.claim("data", "zonal")
        assert await claims.refresh("data") is None
        found = claims.binder.filter(BOTH, "a")
        assert not found.nodes
        why = "no volume of class zonal can be made for it there"
        assert dict(found.refusals) == {"n1": why, "n2": why}

    run_virtual(main())


def test_what_cannot_be_read_is_an_error_and_read_next_time() -> None:
    async def main() -> None:
        claims = Claims()
        claims.storage.bound("data", "n2")
        claims.server.inject(Fault.answer(500, "InternalError"))
        with pytest.raises(ApiError):
            await claims.refresh("data")
        assert claims.nodes() == {"n1", "n2"}
        await claims.refresh("data")
        assert claims.nodes() == {"n2"}

    run_virtual(main())


def test_of_too_many_pods_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_binding, "MAX_PODS", 2)

    async def main() -> None:
        claims = Claims()
        claims.storage.bound("data", "n2")
        for uid in "abc":
            await claims.refresh("data", uid=uid)
        assert [claims.nodes(uid) for uid in "abc"] == [{"n1", "n2"}, {"n2"}, {"n2"}]

    run_virtual(main())
