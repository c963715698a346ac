"""What all tests share: hypothesis' profiles, and an API server that starts once."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server
from kubeshare.lab.progress import Progress

# How long it takes to draw an example is a matter of what else the machine does.
_UNTIMED = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, print_blob=True, suppress_health_check=_UNTIMED)
settings.register_profile(
    "fresh", derandomize=False, print_blob=True, suppress_health_check=_UNTIMED
)
settings.load_profile("same")


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A real etcd and kube-apiserver with RBAC, on the loopback (mark: ``apiserver``).

    There is no controller manager: default ServiceAccounts are not made and
    nothing is garbage collected. Use a namespace of your own in each test.
    """
    with local_api_server(Progress()) as server:
        yield server
