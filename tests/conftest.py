"""Fixtures that start real programs; each starts once for a whole run of pytest."""

from collections.abc import Iterator

import pytest

from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.control_plane import ApiServer, local_api_server
from kubeshare.lab.progress import Progress


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A real etcd and kube-apiserver with RBAC, on the loopback (mark: ``apiserver``).

    There is no controller manager: default ServiceAccounts are not made and
    nothing is garbage collected. Use a namespace of your own in each test.
    """
    with local_api_server(Progress()) as server:
        yield server


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A lab of two nodes with two fake GPUs each (mark: ``lab``); down at the end.

    It is the same for all tests: use a namespace of your own and leave every
    component running. What a killed run has left is taken down first.
    """
    booted = Lab("test")
    booted.down()
    try:
        booted.up(Shape(nodes=2, gpus="V100x2"))
        yield booted
    finally:
        booted.down()
