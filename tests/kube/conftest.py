"""What tests of the runtime share."""

import pytest

from kube_fake import FakeApiServer


@pytest.fixture
def server() -> FakeApiServer:
    """An empty API server."""
    return FakeApiServer()
