"""Servers pause after each answer; what that costs them depends on who waits."""

import pytest

from core.token.services import Services
from core.token.simulation import SECOND


@pytest.mark.parametrize(
    ("limit", "every_ms", "work_ms", "answered"),
    [(0.3, 9, 1, 100), (0.3, 18, 2, 50), (0.1, 30, 2, 30)],
)
def test_a_server_that_is_alone_pays_for_no_pause(
    limit: float, every_ms: int, work_ms: int, answered: int
) -> None:
    services = Services()
    services.serve("server", limit, limit, every_ms=every_ms, work_ms=work_ms)

    services.run(60 * SECOND)

    assert len(services.waits_ns["server"]) >= 0.95 * answered * 60


@pytest.mark.parametrize(("request_share", "every_ms"), [(0.3, 18), (0.2, 30)])
def test_a_prompt_server_pays_once_for_each_pause(request_share: float, every_ms: int) -> None:
    services = Services()
    services.serve("server", request_share, 1, every_ms=every_ms, work_ms=2, latency_sensitive=True)
    services.join("other", 1 - request_share, 1)

    services.run(60 * SECOND)

    waits_ns = sorted(services.waits_ns["server"])
    assert waits_ns[int(len(waits_ns) * 0.99)] <= 15_000_000
