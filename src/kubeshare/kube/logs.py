"""Structured logs: constant messages, data as keys; JSON in a pod, columns on a terminal."""

import logging
import sys

import structlog

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str = "info", *, json: bool | None = None) -> None:
    """Send all logs to stderr.

    Args:
        level: one of ``LEVELS``.
        json: one JSON object a line; by default unless stderr is a terminal.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    number = logging.getLevelNamesMapping()[level.upper()]
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
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
