"""Structured logs: constant messages with data as keys, JSON in a pod."""

import logging
import sys
import uuid
from contextvars import ContextVar
from typing import NamedTuple

import structlog


class ReconcileContext(NamedTuple):
    """The reconcile that a task runs: its controller, its key, and its number in this program."""

    controller: str
    key: object
    number: int


current_reconcile: ContextVar[ReconcileContext | None] = ContextVar("looking", default=None)
"""The reconcile of the present task. It is formatted only when a line is logged, which few
reconciles do."""

_RUN = uuid.uuid4().hex[:6]


def configure_logging(level: str = "info", *, json: bool | None = None) -> None:
    """Write all logs to stderr.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        json: one JSON object for each line; by default unless stderr is a terminal.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    number = logging.getLevelNamesMapping()[level.upper()]
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
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # From libraries that use the standard logging module: warnings and errors only.
    logging.basicConfig(level=max(number, logging.WARNING), force=True)


def add_reconcile_context(
    _logger: structlog.typing.WrappedLogger, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A structlog processor that adds controller, object and reconcile id of the present task."""
    context = current_reconcile.get()
    if context is not None:
        line["controller"], line["object"] = context.controller, str(context.key)
        line["reconcile_id"] = f"{_RUN}-{context.number}"
    return line
