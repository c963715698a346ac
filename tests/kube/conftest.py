"""Fixtures of the runtime's tests: a fake API server, and both kinds for the contract suite."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from kube.contract import ControlPlane, FakeControlPlane, RealControlPlane
from kubeshare.simulator.control import FakeApiServer


@pytest.fixture
def server() -> FakeApiServer:
    """An empty API server."""
    return FakeApiServer()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.apiserver)])
def control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """The fake API server, and the real one (mark: ``apiserver``): for the contract suite."""
    if request.param == "fake":
        return FakeControlPlane()
    return RealControlPlane(request.getfixturevalue("apiserver"))


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """Put the configuration of this process's logs back."""
    before, root = structlog.get_config(), logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    structlog.configure(**before)
    root.setLevel(level)
    root.handlers = handlers
