"""For all tests of the fault matrix: their many runs format no logs."""

from collections.abc import Iterator

import pytest
import structlog

from robustness.fault_matrix.matrix import log_nothing


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    log_nothing()
    yield
    structlog.reset_defaults()
