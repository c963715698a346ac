"""The lab with KubeShare on it, and a namespace for each test."""

from collections.abc import Iterator

import pytest

from e2e.booting import install, space_in
from e2e.restarts import Restarts
from e2e.space import Space
from e2e.stage import Stage
from e2e.stalls import Stalls
from e2e.tenants import ROLES, Role, tenant_of
from kubeshare.lab.cluster import Lab


@pytest.fixture(scope="session")
def stage(lab: Lab) -> Stage:
    """The lab with KubeShare on it."""
    stage = Stage(lab)
    install(stage)
    return stage


@pytest.fixture(scope="session")
def stalls(stage: Stage) -> Iterator[Stalls]:
    """When the lab's API server did not answer while tests ran."""
    with Stalls(stage.heartbeat) as stalls:
        yield stalls


@pytest.fixture(scope="session")
def restarts(stage: Stage) -> Iterator[Restarts]:
    """What KubeShare's programs logged before each of their restarts while tests ran."""
    with Restarts(stage) as restarts:
        yield restarts


@pytest.fixture(autouse=True)
def _recorded(request: pytest.FixtureRequest) -> None:
    """Record stalls and restarts from the first test in the lab on."""
    if request.node.get_closest_marker("lab"):
        request.getfixturevalue("stalls")
        request.getfixturevalue("restarts")


@pytest.fixture
def space(stage: Stage) -> Iterator[Space]:
    """A namespace of the test's own; at its end every GPU must be given back."""
    with space_in(stage) as space:
        yield space


@pytest.fixture
def tenants(space: Space) -> dict[Role, Space]:
    """The test's namespace as each role may use it; see :func:`tenant_of`."""
    return {role: tenant_of(space, role) for role in ROLES}


@pytest.fixture(scope="module")
def shared_space(stage: Stage) -> Iterator[Space]:
    """A namespace in which all tests of a module look at the same SharePods."""
    with space_in(stage) as space:
        yield space
