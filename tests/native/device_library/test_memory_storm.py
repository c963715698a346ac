"""Many processes that allocate at once and are killed at random: nothing is lost, nothing stays."""

import random
import time
from pathlib import Path

import pytest

import samples
from deadlines import DEADLINE_S
from fakes.session import MIB, FakeSession, Machine, Probe, eventually

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.sampled]

LIMIT = 1024 * MIB
PROCESSES = 64
THREADS = 8
SECONDS = samples.count(whole=20, sample=5)


def start(machine: Machine, session: FakeSession, seed: int) -> Probe:
    return machine.run(["memory-storm", str(THREADS), str(seed)], session.environment)


def test_a_storm_with_random_kills_stays_within_the_limit_and_ends_at_nothing(
    folder: Path, machine: Machine
) -> None:
    chance = random.Random(5)
    with FakeSession(folder, [machine.grant(memory=LIMIT)]) as session:
        session.stop()
        storm = [start(machine, session, seed) for seed in range(PROCESSES)]
        started = PROCESSES
        most, began = 0, time.monotonic()
        while time.monotonic() - began < (SECONDS if most > LIMIT // 2 else DEADLINE_S):
            with storm.pop(chance.randrange(PROCESSES)) as victim:
                victim.kill()
            storm.append(start(machine, session, started))
            started += 1
            most = max(most, machine.gpu()["used_memory"])
        survivors = storm[::2]
        for victim in storm[1::2]:
            with victim:
                victim.kill()
        for survivor in survivors:
            with survivor:
                assert survivor.process.poll() is None, survivor.errors()
                assert survivor.finish() == 0
                assert survivor.answer() == {"freed": True}
        assert LIMIT // 2 < most <= LIMIT
        assert eventually(lambda: session.charged() == machine.gpu()["used_memory"] == 0)
