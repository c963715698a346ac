"""A gang without room is not tried again for a moment."""

import asyncio

import pytest

from kubeshare.kube.meta import Key
from kubeshare.scheduler.gang import refusals
from kubeshare.scheduler.gang.refusals import RecentRefusals
from kubeshare.simulator.control import run_virtual

GANG, OTHER = Key("d", "g"), Key("d", "h")


def test_an_answer_stands_for_a_second_unless_there_is_more_room() -> None:
    async def main() -> None:
        await asyncio.sleep(100)
        known = RecentRefusals()
        assert known.seconds_left(GANG, 3) == 0
        known.note(GANG, 3)
        await asyncio.sleep(0.25)
        assert known.seconds_left(GANG, 3) == pytest.approx(0.75)
        assert known.seconds_left(GANG, 4) == 0
        assert known.seconds_left(OTHER, 3) == 0
        await asyncio.sleep(1)
        assert known.seconds_left(GANG, 3) == 0
        known.note(GANG, 4)
        assert known.seconds_left(GANG, 4) == pytest.approx(1)
        known.forget(GANG)
        known.forget(GANG)
        assert known.seconds_left(GANG, 4) == 0

    run_virtual(main())


def test_of_members_with_news_the_first_is_noted() -> None:
    known = RecentRefusals()
    assert [known.postpone(GANG), known.postpone(GANG), known.postpone(OTHER)] == [
        *(True, False, True)
    ]
    known.forget(GANG)
    assert not known.postpone(GANG)
    known.end_postponement(GANG)
    known.end_postponement(GANG)
    assert known.postpone(GANG)


def test_of_too_many_gangs_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_GANGS", 2)

    async def main() -> None:
        known = RecentRefusals()
        third = Key("d", "i")
        for gang in (GANG, OTHER, GANG, third):
            known.note(gang, 0)
        left = [known.seconds_left(gang, 0) for gang in (GANG, OTHER, third)]
        assert left == [pytest.approx(1), 0, pytest.approx(1)]

    run_virtual(main())
