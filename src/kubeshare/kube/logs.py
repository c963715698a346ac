"""Structured logs: constant messages with data as keys, JSON in a pod."""

import argparse
import logging
import sys
import uuid
from contextvars import ContextVar
from typing import Final, NamedTuple

import structlog


class ReconcileContext(NamedTuple):
    """The reconcile that a task runs: its controller, its key, and its number in this program."""

    controller: str
    key: object
    number: int


current_reconcile: ContextVar[ReconcileContext | None] = ContextVar("looking", default=None)
"""The reconcile of the present task. It is formatted only when a line is logged, which few
reconciles do."""

LEVELS: Final = ("debug", "info", "warning", "error")
"""From which severity on lines are logged."""
LEVEL: Final = "info"
"""The severity where no other is asked for."""

_RUN = uuid.uuid4().hex[:6]


def add_level_option(parser: argparse.ArgumentParser) -> None:
    """Let a program have ``--log-level``, one of ``LEVELS``."""
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default=LEVEL,
        help="log what is at least as severe; default: %(default)s",
    )


def configure_logging(level: str = LEVEL, *, json: bool | None = None) -> None:
    """Write all logs to stderr.

    Args:
        level: one of ``LEVELS``.
        json: one JSON object for each line; by default unless stderr is a terminal.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    number = _number(level)
    processors: list[structlog.typing.Processor] = [
        add_reconcile_context,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        processors.append(structlog.dev.ConsoleRenderer())
    structlog.configure(
        processors=processors,
        wrapper_class=_logger_class(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # From libraries that use the standard logging module: warnings and errors only.
    logging.basicConfig(level=max(number, logging.WARNING), force=True)


def debugging() -> bool:
    """Whether this program was asked for the severity ``debug``.

    Each request and each reconcile asks this first: where nobody has configured logs, as in a
    program that uses the client, structlog prints lines of all severities.
    """
    return structlog.get_config()["wrapper_class"] is _logger_class("debug")


def add_reconcile_context(
    _logger: structlog.typing.WrappedLogger, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A structlog processor that adds controller, object and reconcile id of the present task."""
    context = current_reconcile.get()
    if context is not None:
        line["controller"], line["object"] = context.controller, str(context.key)
        line["reconcile_id"] = f"{_RUN}-{context.number}"
    return line


def _logger_class(level: str) -> type:
    """The class of loggers for a severity, which structlog has once."""
    return structlog.make_filtering_bound_logger(_number(level))


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
