"""A small Kubernetes runtime: read by list and watch, decide by key, write conditionally.

The pieces, in the order in which an object travels through them:

* ``client``: one method a verb over an authenticated HTTP client; errors for people.
* ``reflector``: keeps a ``store`` equal to what the API server has, whatever breaks between.
* ``workqueue``: keys that need a look; one key is never looked at twice at once.
* ``controller``: takes keys and calls a reconcile function that compares wish and fact.
* ``lease``: at most one replica works at a time.
* ``events``, ``conditions``: what people read.
* ``runtime``: the shell of a program: signals, logging, probes and metrics.

Everything is level-based: a reconcile function is told a key, never what happened
to it, so that a missed, repeated or late event makes no difference. Nothing here
knows about GPUs.
"""

import sys


def _import_structlog_alone() -> None:
    """Import it without the library by which it colours tracebacks.

    That is there for the command line, and would cost each program 7 MiB and 80 ms though none
    of them prints a traceback in colours.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]


_import_structlog_alone()
