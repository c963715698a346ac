"""Reads what KubeShare's programs logged during all other tests of the lab, and their restarts.

``LAB_ORDER`` in ``tests/conftest.py`` puts this module after all others but one. The logs of
pods that tests ended, and of containers before their last restart, are kept.
"""

import pytest

from e2e.restarts import Restarts
from e2e.stage import Stage
from e2e.stalls import Stalls

pytestmark = pytest.mark.lab

# Nothing can be created in a namespace that is terminating, nor beyond its limits and quotas.
NO_MATTER_OF_RIGHTS = ("is being terminated", "usage per", "exceeded quota")


@pytest.fixture(scope="module")
def logs(stage: Stage) -> dict[str, str]:
    """What each pod of KubeShare has logged, by its name."""
    stage.keep_logs()
    return stage.logs


@pytest.mark.parametrize("word", ["forbidden", "Traceback"])
def test_no_program_was_refused_anything_nor_failed_itself(logs: dict[str, str], word: str) -> None:
    assert logs
    found = [
        f"{pod}: {line}"
        for pod, logged in logs.items()
        for line in logged.splitlines()
        if word.lower() in line.lower() and not _is_refused_to_anybody(line)
    ]

    assert found == []


def test_no_program_was_restarted_but_by_a_test_or_a_stall(
    stage: Stage, logs: dict[str, str], stalls: Stalls, restarts: Restarts
) -> None:
    assert logs
    assert stalls.answers
    unexpected = []
    for pod, times in stage.restarts.items():
        said = restarts.logs.get(pod, "") + logs[pod]
        excused = stalls.excused(said)
        if times > stage.caused[pod] + excused:
            lines = said.splitlines()
            last = "\n".join((*filter(_is_of_an_end, lines), "...", *lines[-5:]))
            unexpected.append(
                f"{pod}: {times} restarts, {stage.caused[pod]} caused by tests, {excused} by stalls"
                f" {stalls.spans}\nit was last ended by {stage.last_end(pod)}; it said:\n{last}"
            )

    if unexpected:
        pytest.fail("\n\n".join(unexpected))


def _is_of_an_end(line: str) -> bool:
    return any(word in line for word in ("cannot go on", "critical"))


def _is_refused_to_anybody(line: str) -> bool:
    return any(words in line for words in NO_MATTER_OF_RIGHTS)
