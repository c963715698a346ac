"""What tests of the runtime share."""

import pytest

from fakes.kube import FakeApiServer


@pytest.fixture
def server() -> FakeApiServer:
    """An empty API server."""
    return FakeApiServer()
