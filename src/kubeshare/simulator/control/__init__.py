"""A simulated Kubernetes control plane: a fake API server and virtual time.

:class:`FakeApiServer` answers the requests of a :class:`~kubeshare.kube.client.client.Client`
inside the process, as the transport of its HTTP client. So programs run in virtual time, and
every fault strikes exactly the request that a script names. No controller imports this package.

The fake server behaves as the real one in: resourceVersions, uids, generations; lists in pages;
watches with bookmarks and 410; JSON patch with ``test``, merge patch; the status subresource;
preconditions; finalizers; graceful deletion of pods, binding and eviction; label and field
selectors; pruning and defaults of a CRD (``add_crd``). ``tests/kube/test_contract.py`` runs the
same assertions against both.

The fake server has no garbage collection (dependents of a deleted owner stay), no controllers,
no admission policies, and no validation of built-in kinds or of CRDs (rules are given with
``add_rule``); clients have no users, but may have RBAC permissions (``authorizers``).
Server-side apply merges maps, conditions by type, and finalizers; all other lists are atomic.
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
