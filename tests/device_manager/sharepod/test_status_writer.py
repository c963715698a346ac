"""When the status of a SharePod is written: not what passes, not twice, not what others wrote."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fakes import manifests
from kubeshare.api import sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, AllocatedGPU
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LASTING = status.not_allocated(Reason.GPU_NOT_FREE, "why")
PASSING = status.not_allocated(Reason.CREATING, "soon", passing=True)


class Stage:
    """A writer, and the SharePods that it writes."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.writer = StatusWriter(self.server.client("test"), lambda: NOW)

    def seed(self, name: str, **of_status: Any) -> None:
        raw = manifests.sharepod(name, metadata={"namespace": "default"})
        self.server.seed(SHAREPODS, raw | ({"status": of_status} if of_status else {}))

    def raw(self, name: str = "a") -> Raw:
        found = self.server.stored(SHAREPODS, name, "default")
        assert found is not None
        return dict(found)

    async def write(self, report: Report, name: str = "a") -> tuple[bool, RequeueAfter | None]:
        return await self.writer.write(sharepods.view(self.raw(name)), report, None)


def play(script: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        stage.seed("a")
        await script(stage)

    run_virtual(main())


def test_a_report_is_written_whole_and_once() -> None:
    async def script(stage: Stage) -> None:
        report = msgspec.structs.replace(
            LASTING,
            node="n1",
            phase="Pending",
            pod_ip="10.0.0.1",
            start_time="2026-01-01T00:00:01Z",
            finish_time="2026-01-01T00:00:02Z",
        )
        assert await stage.write(report) == (True, None)
        raw = stage.raw()
        generation = raw["metadata"]["generation"]
        assert raw["status"] == {
            "conditions": [
                {
                    "type": "Allocated",
                    "status": "False",
                    "reason": "GPUNotFree",
                    "message": "why",
                    "observedGeneration": generation,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "share": {},
            "nodeName": "n1",
            "gpus": [],
            "phase": "Pending",
            "message": "why",
            "observedGeneration": generation,
            "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:01Z",
            "finishTime": "2026-01-01T00:00:02Z",
        }
        [request] = [each for each in stage.server.requests if each.is_write]
        assert request.query["force"] == "true"
        assert await stage.write(report) == (False, None)

    play(script)


@pytest.mark.parametrize(
    "change",
    [
        {"node": "n2"},
        {"gpus": (AllocatedGPU(id="A"),)},
        {"phase": "Running"},
        {"message": "else"},
        {"pod_ip": "10.0.0.2"},
        {"start_time": "2026-01-01T00:00:03Z"},
        {"conditions": status.not_allocated(Reason.RELEASING, "why").conditions},
        {"conditions": status.not_allocated(Reason.GPU_NOT_FREE, "else").conditions},
        {"conditions": ()},
    ],
)
def test_every_difference_is_written(change: dict[str, Any]) -> None:
    async def script(stage: Stage) -> None:
        await stage.write(LASTING)
        assert await stage.write(msgspec.structs.replace(LASTING, **change)) == (True, None)

    play(script)


def test_all_gpus_are_shown_and_a_status_of_before_gets_them_once() -> None:
    async def script(stage: Stage) -> None:
        gpus = (
            AllocatedGPU(id="A", uuid="GPU-1", model="V100"),
            AllocatedGPU(id="B", uuid="GPU-2", model="V100"),
        )
        report = msgspec.structs.replace(LASTING, gpus=gpus)
        await stage.write(report)
        shown = {"ids": "A,B", "uuids": "GPU-1,GPU-2", "models": "V100"}
        assert stage.raw()["status"]["summary"] == shown
        assert await stage.write(report) == (False, None)
        stage.server.change(SHAREPODS, "a", "default", lambda raw: raw["status"].pop("summary"))
        assert await stage.write(report) == (True, None)
        assert stage.raw()["status"]["summary"] == shown
        await stage.write(LASTING)
        assert not stage.raw()["status"].get("summary")

    play(script)


def test_a_new_generation_is_observed_and_other_conditions_are_left_alone() -> None:
    async def script(stage: Stage) -> None:
        other = {"type": "Scheduled", "status": "True", "reason": "Bound", "message": "m"}
        stage.seed("a", conditions=[other])
        await stage.write(LASTING)
        [request] = [each for each in stage.server.requests if each.is_write]
        assert [each["type"] for each in request.body["status"]["conditions"]] == ["Allocated"]
        stage.server.change(
            SHAREPODS, "a", "default", lambda raw: raw["metadata"].update(generation=7)
        )
        assert await stage.write(LASTING) == (True, None)

    play(script)


def test_what_passes_is_written_when_it_lasts_for_longer_the_more_of_them_there_are() -> None:
    async def script(stage: Stage) -> None:
        assert await stage.write(PASSING) == (False, RequeueAfter(2.0))
        stage.seed("b")
        assert await stage.write(PASSING, "b") == (False, RequeueAfter(2.2))
        assert await stage.write(PASSING) == (False, RequeueAfter(2.2))
        assert not [each for each in stage.server.requests if each.is_write]
        assert await stage.write(LASTING) == (True, None)
        stage.writer.forget(Key("default", "b"))
        assert await stage.write(PASSING) == (False, RequeueAfter(2.0))

    play(script)


def test_a_namesake_has_the_whole_time_to_pass() -> None:
    async def script(stage: Stage) -> None:
        view = sharepods.view(stage.raw())
        await stage.writer.write(view, PASSING, None)
        metadata = msgspec.structs.replace(view.metadata, uid="another")
        later = msgspec.structs.replace(view, metadata=metadata)
        for _ in range(2):
            assert await stage.writer.write(later, PASSING, None) == (False, RequeueAfter(2.0))

    play(script)


def test_so_many_states_that_pass_wait_two_minutes_at_most() -> None:
    async def script(stage: Stage) -> None:
        view = sharepods.view(stage.raw())
        for number in range(1300):
            metadata = msgspec.structs.replace(view.metadata, name=f"s{number}")
            each = msgspec.structs.replace(view, metadata=metadata)
            last = await stage.writer.write(each, PASSING, None)
        assert last == (False, RequeueAfter(120.0))

    play(script)


def test_its_own_write_is_recognized_once() -> None:
    async def script(stage: Stage) -> None:
        key = Key("default", "a")
        before = stage.raw()
        assert not stage.writer.is_own(key, before)
        await stage.write(LASTING)
        assert stage.writer.differs(before, stage.raw())
        assert not stage.writer.differs(stage.raw(), stage.raw())
        assert stage.writer.is_own(key, stage.raw())
        assert not stage.writer.is_own(key, stage.raw())
        await stage.write(status.refused("its spec", shares=True))
        assert not stage.writer.is_own(key, stage.raw()), "the controller acts on this one"

    play(script)


def test_a_sharepod_that_is_gone_gets_no_status() -> None:
    async def script(stage: Stage) -> None:
        view = sharepods.view(stage.raw())
        stage.server.remove(SHAREPODS, "a", "default")
        assert await stage.writer.write(view, LASTING, None) == (False, None)

    play(script)


@pytest.mark.parametrize(
    "field",
    ["nodeName", "gpus", "summary", "phase", "message", "podIP", "startTime", "finishTime"],
)
def test_a_field_that_somebody_else_has_changed_is_noticed(field: str) -> None:
    changed: Raw = {"status": {field: "else"}}
    assert StatusWriter.differs({}, changed)
    assert not StatusWriter.differs(changed, {"status": {field: "else", "share": {}}})


def _decide(raw: Raw) -> None:
    raw["spec"]["gpu"] = {"request": "0.3", "memory": "1Gi", "id": "A", "attempt": 1}
    raw["spec"]["nodeName"] = "n1"


def _undo(raw: Raw) -> None:
    raw["spec"]["gpu"].pop("id")
    raw["spec"].pop("nodeName")


class Decided(Stage):
    """A stage on which a demand is decided."""

    def seed(self, name: str, **of_status: Any) -> None:
        super().seed(name, **of_status)
        self.server.change(SHAREPODS, name, "default", _decide)

    async def write_seen(self, raw: Raw, report: Report) -> tuple[bool, RequeueAfter | None]:
        """Write what is decided from a state that may be old."""
        return await self.writer.write(sharepods.view(raw), report, DEMANDS.of_sharepod(raw))

    def scheduled(self) -> list[tuple[str, str, str]]:
        conditions = self.raw()["status"]["conditions"]
        found = [each for each in conditions if each["type"] == "Scheduled"]
        return [(each["status"], each["reason"], each["message"]) for each in found]

    async def schedule(self, status: str, reason: str, message: str) -> None:
        """What Sched writes."""
        known = {"type": "Scheduled", "status": status, "reason": reason, "message": message}
        body = {"metadata": {"name": "a"}, "status": {"conditions": [known]}}
        await self.server.client("sched").apply(
            SHAREPODS, body, "default", field_manager="sched", force=True, subresource="status"
        )


DEMANDS = Demands()
BOUND = ("True", "Bound", "vGPU A on node n1")
FULL = ("False", "NoRoom", "full")


def play_decided(script: Callable[[Decided], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Decided()
        stage.seed("a")
        await script(stage)

    run_virtual(main())


def test_a_decision_is_confirmed_with_the_status_and_no_longer_when_it_is_undone() -> None:
    async def script(stage: Decided) -> None:
        await stage.write_seen(stage.raw(), LASTING)
        assert stage.scheduled() == [BOUND]
        stage.server.change(SHAREPODS, "a", "default", _undo)
        report = status.not_allocated(Reason.UNDONE, "gone")
        await stage.write_seen(stage.raw(), report)
        assert stage.scheduled() == []

    play_decided(script)


def test_a_decision_of_the_author_is_confirmed_as_such() -> None:
    async def script(stage: Decided) -> None:
        stage.server.change(
            SHAREPODS, "a", "default", lambda raw: raw["spec"]["gpu"].pop("attempt")
        )
        await stage.write_seen(stage.raw(), LASTING)
        assert stage.scheduled() == [("True", "Given", "given by its author: vGPU A on node n1")]

    play_decided(script)


def test_other_words_of_sched_are_left_alone_and_the_same_ones_are_kept() -> None:
    async def script(stage: Decided) -> None:
        await stage.schedule(*FULL)
        await stage.write_seen(stage.raw(), LASTING)
        assert stage.scheduled() == [FULL]
        await stage.schedule(*BOUND)
        await stage.write_seen(stage.raw(), status.not_allocated(Reason.CREATING, "soon"))
        assert stage.scheduled() == [BOUND]
        stage.server.change(SHAREPODS, "a", "default", _undo)
        await stage.schedule(*FULL)
        await stage.write_seen(stage.raw(), LASTING)
        assert stage.scheduled() == [FULL]

    play_decided(script)


def test_what_sched_has_said_since_is_not_replaced() -> None:
    async def script(stage: Decided) -> None:
        seen = stage.raw()
        await stage.schedule(*FULL)
        for _ in range(2):
            with pytest.raises(ConflictError):
                await stage.write_seen(seen, LASTING)
            assert stage.scheduled() == [FULL]

    play_decided(script)


def test_what_sched_has_said_since_a_write_without_the_decision_is_not_replaced() -> None:
    async def script(stage: Decided) -> None:
        await stage.write(LASTING)
        seen = stage.raw()
        await stage.schedule(*FULL)
        with pytest.raises(ConflictError):
            await stage.write_seen(seen, status.not_allocated(Reason.CREATING, "soon"))
        assert stage.scheduled() == [FULL]

    play_decided(script)


def test_a_second_write_does_not_wait_until_the_watch_has_shown_the_first() -> None:
    async def script(stage: Decided) -> None:
        seen = stage.raw()
        await stage.write_seen(seen, LASTING)
        later = status.not_allocated(Reason.CREATING, "soon")
        assert await stage.write_seen(seen, later) == (True, None)
        assert stage.scheduled() == [BOUND]

    play_decided(script)
