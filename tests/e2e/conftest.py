"""The lab with KubeShare on it, and a namespace for each test."""

from collections.abc import Iterator

import pytest

from e2e.booting import booted, space_in
from e2e.space import Space
from e2e.stage import Stage


@pytest.fixture(scope="package")
def stage() -> Iterator[Stage]:
    """A lab of two nodes with two V100 each, with KubeShare on it; down at the end."""
    with booted("cluster") as stage:
        yield stage


@pytest.fixture
def space(stage: Stage) -> Iterator[Space]:
    """A namespace of the test's own; at its end every GPU must be given back."""
    with space_in(stage) as space:
        yield space


@pytest.fixture(scope="module")
def shared_space(stage: Stage) -> Iterator[Space]:
    """A namespace in which all tests of a module look at the same SharePods."""
    with space_in(stage) as space:
        yield space
