"""Decisions that the device manager has to confirm are counted as long as it may, no longer."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from datetime import UTC, datetime

import pytest

from fakes import manifests
from kubeshare.api import sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, MODIFIED, Change
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import key_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.sharepod import CONFIRM_SECONDS, SharePods
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.simulator.control import FakeApiServer, run_virtual


class Stage:
    """The SharePods, one of which is decided and known to the scheduler."""

    def __init__(self) -> None:
        server = FakeApiServer()
        server.seed(SHAREPODS, manifests.sharepod("a", metadata={"namespace": "default"}))
        server.change(SHAREPODS, "a", "default", _decide)
        found = server.stored(SHAREPODS, "a", "default")
        assert found is not None
        self.raw: Raw = dict(found)
        client = server.client("scheduler")
        self.kind = SharePods(
            client,
            AssumeCache(Reflector(client, SHAREPODS)),
            ScheduledCondition(client, lambda: datetime(2026, 1, 1, tzinfo=UTC)),
            lambda _: 0,
            demands=Demands(),
            device_manager_leads=lambda: True,
        )
        self.kind.known.assume(self.raw)

    async def confirm(self) -> RequeueAfter | None:
        requester = self.kind.get(key_of(self.raw))
        assert requester is not None
        return await requester.confirm()

    def changed(self, change: Callable[[Raw], None]) -> Raw:
        raw = deepcopy(self.raw)
        change(raw)
        return raw


def play(script: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        await script(Stage())

    run_virtual(main())


def _decide(raw: Raw) -> None:
    raw["spec"]["gpu"] = {"request": "0.3", "memory": "1Gi", "id": "A", "attempt": 1}
    raw["spec"]["nodeName"] = "n1"


def _clear(raw: Raw) -> None:
    raw["spec"]["gpu"].pop("id")
    raw["spec"].pop("nodeName")


def _show(raw: Raw) -> None:
    reason, message = sharepods.decision_words(sharepods.view(raw))
    generation = raw["metadata"]["generation"]
    shown = {"type": "Scheduled", "status": "True", "reason": reason, "message": message}
    raw["status"] = {"conditions": [shown | {"observedGeneration": generation}]}


def _show_and_end(raw: Raw) -> None:
    _show(raw)
    raw["status"]["phase"] = "Succeeded"


def _end(raw: Raw) -> None:
    raw["status"] = {"phase": "Failed"}


def _delete(raw: Raw) -> None:
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


ENDINGS = pytest.mark.parametrize("ending", [_clear, _show, _show_and_end, _end, _delete])


@ENDINGS
def test_a_decision_that_nobody_has_to_confirm_any_more_is_not_counted(
    ending: Callable[[Raw], None],
) -> None:
    async def script(stage: Stage) -> None:
        assert await stage.confirm() == RequeueAfter(CONFIRM_SECONDS)
        stage.kind.keys(Change(MODIFIED, stage.changed(ending), stage.raw))
        assert not len(stage.kind.unconfirmed)

    play(script)


def test_a_decision_that_is_gone_is_not_counted() -> None:
    async def script(stage: Stage) -> None:
        await stage.confirm()
        stage.kind.keys(Change(DELETED, stage.raw, stage.raw))
        assert not len(stage.kind.unconfirmed)

    play(script)


def test_a_decision_is_counted_until_its_condition_is_there() -> None:
    async def script(stage: Stage) -> None:
        await stage.confirm()
        running = stage.changed(lambda raw: raw.update(status={"phase": "Running"}))
        stage.kind.keys(Change(MODIFIED, running, stage.raw))
        assert len(stage.kind.unconfirmed) == 1

    play(script)


@ENDINGS
def test_a_decision_that_ended_while_it_was_written_is_not_counted(
    ending: Callable[[Raw], None],
) -> None:
    async def script(stage: Stage) -> None:
        written = stage.kind.get(key_of(stage.raw))
        assert written is not None
        later = stage.changed(ending)
        later["metadata"]["resourceVersion"] = str(int(later["metadata"]["resourceVersion"]) + 1)
        stage.kind.known.assume(later)
        assert await written.confirm() is None
        assert not len(stage.kind.unconfirmed)

    play(script)


def test_a_decision_that_was_gone_when_it_was_written_is_not_counted() -> None:
    async def script(stage: Stage) -> None:
        written = stage.kind.get(key_of(stage.raw))
        assert written is not None
        stage.kind.known.forget(stage.raw)
        assert await written.confirm() is None
        assert not len(stage.kind.unconfirmed)

    play(script)
