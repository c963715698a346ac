"""Status files, and waiting for one."""

import pytest

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import (
    DaemonMissingError,
    Status,
    read_status,
    wait_status,
    write_status,
)


def test_an_answer_is_none_until_it_comes(paths: Paths) -> None:
    paths.make()
    assert read_status(paths, "a") is None

    write_status(paths, Status(claim="a", state="REFUSED", reason="full"))

    assert read_status(paths, "a") == Status(claim="a", state="REFUSED", reason="full")


def test_waiting_for_nobodys_answer_ends_with_advice(paths: Paths) -> None:
    paths.make()

    with pytest.raises(DaemonMissingError, match=r"daemon\.log"):
        wait_status(paths, "a", 0.01)
