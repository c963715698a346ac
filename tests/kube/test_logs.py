"""Logs are JSON in a pod and plain at a terminal, from the level that was asked for."""

import json
import logging
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog

from kubeshare.kube import _import_structlog_without_rich
from kubeshare.kube.logs import ReconcileContext, configure_logging, current_reconcile

pytestmark = pytest.mark.usefixtures("logs_as_before")


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_an_object_with_level_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.get_logger().info("bound", node="n1")
    structlog.get_logger().debug("not said")
    [line] = logged(capsys)
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == timedelta(0)
    assert line == {"event": "bound", "level": "info", "node": "n1"}


def test_an_error_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    try:
        int("no GPU")
    except ValueError:
        structlog.get_logger().exception("failed")
    [line] = logged(capsys)
    assert line["level"] == "error"
    assert "ValueError: invalid literal" in line["exception"]


def test_a_reconcile_is_named_in_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", json=True)
    token = current_reconcile.set(ReconcileContext("vgpus", "default/a", 7))
    structlog.get_logger().debug("mine")
    current_reconcile.reset(token)
    structlog.get_logger().debug("nobody's")
    mine, other = logged(capsys)
    assert (mine["controller"], mine["object"]) == ("vgpus", "default/a")
    assert mine["reconcile_id"].endswith("-7")
    assert not {"controller", "object", "reconcile_id"} & other.keys()


def test_only_warnings_of_libraries_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("trouble")
    assert capsys.readouterr().err == "WARNING:library:trouble\n"
    configure_logging("error")
    logging.getLogger("library").warning("trouble")
    structlog.get_logger().warning("trouble")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("given", [{}, {"json": False}])
def test_a_terminal_gets_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging(**given)
    structlog.get_logger().info("bound", node="n1")
    text = capsys.readouterr().err
    assert "bound" in text
    assert not text.startswith("{")


def test_each_level_leaves_out_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    levels = ["debug", "info", "warning", "error"]
    for number, level in enumerate(levels):
        configure_logging(level)
        logger = structlog.get_logger()
        for each in levels:
            getattr(logger, each)("done")
        assert [line["level"] for line in logged(capsys)] == levels[number:]


def test_programs_log_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in {"rich", "structlog"}:
            monkeypatch.delitem(sys.modules, name)
    _import_structlog_without_rich()
    assert "rich" not in sys.modules
    assert sys.modules["structlog"].dev.rich is None


def test_a_program_that_uses_rich_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", sys)
    _import_structlog_without_rich()
    assert sys.modules["rich"] is sys
