"""What tests of the runtime share."""

import pytest

from kubeshare.simulator.control import FakeApiServer


@pytest.fixture
def server() -> FakeApiServer:
    """An empty API server."""
    return FakeApiServer()
