"""A Kubernetes API server in memory, for tests of what talks to one.

``FakeApiServer`` answers the requests of an ``Api`` inside the process, through the
HTTP client's transport, so tests run in virtual time and every fault comes exactly
where the script says.

What it does as the real one: resourceVersions, uids, generations, list with pages,
watch with bookmarks and 410, JSON patch with ``test``, merge patch, a simple form of
server-side apply, the status subresource, preconditions, finalizers, graceful
deletion of pods, binding, eviction, label and field selectors.

What it does NOT do: it collects no garbage (dependents of a deleted owner stay), runs
no controllers, knows no schemas (rules can be given with ``add_rule``), knows no users (but
the ``rights`` that a test gives a client), and knows of server-side apply only maps,
conditions by type, and finalizers; all other lists are atomic. What depends on those is
tested against a real API server.
"""

from fakes.kube.faults import Fault
from fakes.kube.requests import Request
from fakes.kube.rights import Asked, Grant, Rights
from fakes.kube.server import FakeApiServer
from fakes.kube.storage import Place
from fakes.kube.virtual import run_virtual, until

__all__ = [
    "Asked",
    "FakeApiServer",
    "Fault",
    "Grant",
    "Place",
    "Request",
    "Rights",
    "run_virtual",
    "until",
]
