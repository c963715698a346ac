"""Shared by all tests: hypothesis profiles, one API server, and rules for the order of tests."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kubeshare import native
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server
from kubeshare.lab.progress import Progress

# How long it takes to draw an example depends on what else the machine does.
_UNTIMED = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, print_blob=True, suppress_health_check=_UNTIMED)
settings.register_profile(
    "fresh", derandomize=False, print_blob=True, suppress_health_check=_UNTIMED
)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests on an API server to one worker of pytest-xdist: one server starts."""
    for item in items:
        if item.get_closest_marker("apiserver"):
            item.add_marker(pytest.mark.xdist_group("apiserver"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what to do where the native programs were never built."""
    if item.get_closest_marker("native") and not native.folder().is_dir():
        pytest.fail(f"{native.folder()} does not exist: run `make native`", pytrace=False)


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A real etcd and kube-apiserver with RBAC, on the loopback (mark: ``apiserver``).

    There is no controller manager: default ServiceAccounts are not created and
    nothing is garbage collected. Each test uses a namespace of its own.
    """
    with local_api_server(Progress()) as server:
        yield server
