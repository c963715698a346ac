"""A small Kubernetes runtime, with the parts and the names of client-go.

In the order in which an object travels through them:

* ``client``: one method for each verb over an authenticated HTTP client; errors for people.
* ``cache``: a reflector lists and watches, and keeps a store equal to the API server.
* ``controller``: a work queue of keys, and workers that call a reconcile function for each key;
  leader election; events; timers; the program around them.
* ``meta``, ``resources``, ``conditions``: metadata, kinds and conditions of all objects.

Everything is level-based: a reconcile function gets a key, not an event, and compares desired and
actual state. So a missed, repeated or late event makes no difference. Nothing here knows about
GPUs.
"""

import sys


def _import_structlog_without_rich() -> None:
    """Import structlog without rich, with which it would colour tracebacks.

    rich is installed for the command line. It would cost each program 7 MiB and 80 ms, and no
    program prints coloured tracebacks.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]


_import_structlog_without_rich()
