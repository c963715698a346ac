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

from kubeshare.simulator.control.api_server import FakeApiServer
from kubeshare.simulator.control.faults import Fault
from kubeshare.simulator.control.rbac import Access, Authorizer, Permission
from kubeshare.simulator.control.requests import Request
from kubeshare.simulator.control.storage import ObjectPath
from kubeshare.simulator.control.virtual_time import run_virtual, until

__all__ = [
    "Access",
    "Authorizer",
    "FakeApiServer",
    "Fault",
    "ObjectPath",
    "Permission",
    "Request",
    "run_virtual",
    "until",
]
