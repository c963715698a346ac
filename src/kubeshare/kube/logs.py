"""Structured logs: constant messages, data as keys; JSON in a pod, columns on a terminal."""

import logging
import sys
import uuid
from contextvars import ContextVar
from typing import NamedTuple

import structlog

LEVELS = ("debug", "info", "warning", "error")


class ReconcileContext(NamedTuple):
    """What a controller is looking at, which look of this program's it is, and who looks."""

    controller: str
    key: object
    number: int


current_reconcile: ContextVar[ReconcileContext | None] = ContextVar("looking", default=None)
"""What lines of the present task are about. It is put into words where a line is written, which
few looks do."""

_RUN = uuid.uuid4().hex[:6]


def configure_logging(level: str = "info", *, json: bool | None = None) -> None:
    """Send all logs to stderr.

    Args:
        level: one of ``LEVELS``.
        json: one JSON object a line; by default unless stderr is a terminal.
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
    # Libraries that log by the standard library: only what goes wrong in them.
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, force=True)


def add_reconcile_context(
    _logger: structlog.typing.WrappedLogger, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A processor: what the task that writes the line is looking at, where it looks at anything."""
    look = current_reconcile.get()
    if look is not None:
        line["controller"], line["object"] = look.controller, str(look.key)
        line["reconcile_id"] = f"{_RUN}-{look.number}"
    return line
