"""More binds at one time than there is room for, on a real API server."""

import pytest
from bench.cluster.race import race

from kubeshare.lab.control_plane.api_server import ApiServer


@pytest.mark.apiserver
@pytest.mark.slow
def test_two_replicas_and_sched_fill_every_gpu_and_give_none_too_much(apiserver: ApiServer) -> None:
    """Forty pods and four SharePods for twenty places; ``bench.cluster.race`` has two hundred."""
    found = race(apiserver, 40)
    assert found.wrong == ()
    assert found.bound + found.shared == found.places == 20
    assert found.states >= found.places
    assert found.binds.keys() <= {200, 500}
    assert found.binds[500] > 0, "nothing was refused, so nothing was contended for"
