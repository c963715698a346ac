"""What KubeShare's programs said while all the other tests of this folder played.

The last module of this folder, so it has all of it to read, and the last words of
those that were killed.
"""

import pytest

from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON, Stage

pytestmark = pytest.mark.lab

# Nobody may create anything in a namespace that is going, nor beyond its limits and quotas.
NO_MATTER_OF_RIGHTS = ("is being terminated", "usage per", "exceeded quota")


@pytest.fixture(scope="module")
def logs(stage: Stage) -> dict[str, str]:
    """What each pod of KubeShare has said, by its name."""
    for component in (DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON):
        for pod in stage.system_pods(component):
            stage.keep_log(pod["metadata"]["name"])
    return stage.logs


@pytest.mark.parametrize("word", ["forbidden", "Traceback"])
def test_no_program_was_refused_anything_nor_failed_itself(logs: dict[str, str], word: str) -> None:
    assert logs
    found = [
        f"{pod}: {line}"
        for pod, said in logs.items()
        for line in said.splitlines()
        if word.lower() in line.lower() and not _is_refused_to_anybody(line)
    ]

    assert found == []


def _is_refused_to_anybody(line: str) -> bool:
    return any(words in line for words in NO_MATTER_OF_RIGHTS)
