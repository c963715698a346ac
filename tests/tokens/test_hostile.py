"""Honest processes keep their shares beside a hostile one."""

import pytest
from bench.tokens.hostile import (
    ACTS,
    COMPLAINTS_PER_SECOND_MAX,
    HONEST,
    MEMORY_MAX_KIB,
    REQUESTS,
    SHARE_ERROR_MAX,
    beside_hostile,
)

from kubeshare.tokens.files.run_folder import Paths
from wakeups import Wakeups

SECONDS = 15


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.serial
def test_honest_processes_keep_their_shares_beside_hostile_ones(paths: Paths) -> None:
    with Wakeups() as wakeups:
        seen = beside_hostile(paths, SECONDS)
    assert {what for what, times in seen.acts.items() if times > 0} == ACTS
    for name in HONEST:
        error = SHARE_ERROR_MAX + wakeups.lost
        assert seen.shares[name] > REQUESTS[name] - error, (seen.shares, wakeups.lost)
    assert seen.memory_kib < MEMORY_MAX_KIB
    assert seen.descriptors[1] <= seen.descriptors[0]
    assert seen.complaints < COMPLAINTS_PER_SECOND_MAX * SECONDS, "complaints are bounded too"
    assert seen.errors == ""
