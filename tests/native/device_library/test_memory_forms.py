"""Every way to hold memory: charged as the GPU is, stopped at the limit, and given back."""

from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, Probe
from kubeshare.tokens.files import counters

pytestmark = [pytest.mark.native, pytest.mark.slow]

# Two of them in every run: the shortest way, and the one of the newest runtimes.
PATHS = [
    "direct",
    "address-ptsz",
    *(
        pytest.param(path, marks=pytest.mark.slow)
        for path in ("default", "dlsym", "dlsym-ptsz", "dlvsym", "address", "address-v2")
    ),
]
LIMIT = 1024 * MIB
INVALID_VALUE, OUT_OF_MEMORY = 1, 2

# What takes memory of the GPU; sizes of a half and of several pages of 2 MiB, and of no round
# number of them where the form allows it.
TAKING = {
    "linear": (600, 512 * 1024, 8 * MIB + 1),
    "linear-in-stream": (600, 8 * MIB + 1),
    "pitched": (16 * 4096, 8 * MIB),
    "managed": (600, 8 * MIB + 1),
    "stream": (600, 8 * MIB, 40 * MIB),
    "stream-at-once": (600, 8 * MIB),
    "stream-of-first": (600, 40 * MIB),
    "pool": (600, 40 * MIB),
    "pool-destroyed": (600, 40 * MIB),
    "pool-chosen": (600, 40 * MIB),
    "physical": (8 * MIB,),
    "mapped": (8 * MIB,),
    "retained": (8 * MIB,),
    "side-by-side": (8 * MIB,),
    "tile": (8 * MIB,),
    "tile-of-array": (8 * MIB,),
    "array": (MIB // 2, 8 * MIB),
    "array-v1": (8 * MIB,),
    "array-3d-v1": (8 * MIB,),
    "array-3d": (MIB // 2, 8 * MIB),
    "array-layered": (8 * MIB,),
    "array-compressed": (8 * MIB,),
    "mipmapped": (8 * MIB,),
    "external": (600, 8 * MIB),
    "graph": (600, 8 * MIB),
    "graph-v1": (8 * MIB,),
    "graph-v2": (8 * MIB,),
    "graph-with-parameters": (8 * MIB,),
    "graph-uploaded": (8 * MIB,),
    "graph-node-added": (8 * MIB,),
    "graph-that-frees": (600, 8 * MIB),
    "captured": (600, 8 * MIB),
}
PAGE = 2 * MIB
CHUNK = 32 * MIB  # what the driver takes at once for a pool
POOLED = {"stream", "stream-of-first", "stream-at-once", "pool", "pool-destroyed", "pool-chosen"}
# Graphs that hold no memory between their launches find that of each other.
SHARING = {"graph-that-frees", "captured"}
# What takes none.
FREE = ["host", "host-registered", "physical-of-host", "array-sparse", "array-deferred"]


def begin(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()
    session.open()


def taken(machine: Machine) -> int:
    return int(machine.gpu()["used_memory"])


@pytest.mark.parametrize("path", PATHS)
def test_each_form_is_charged_what_the_gpu_loses_and_gives_it_back(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        begin(session, probe)
        for form, sizes in TAKING.items():
            for size in sizes:
                index = probe.do("hold", form, size)["index"]
                assert session.charged() == taken(machine) > 0, (form, size)
                probe.do("drop", index)
                assert session.charged() == taken(machine) == 0, (form, size)


@pytest.mark.parametrize("form", FREE)
def test_what_takes_no_memory_of_the_gpu_is_not_charged(
    machine: Machine, session: FakeSession, probe: Probe, form: str
) -> None:
    begin(session, probe)
    index = probe.do("hold", form, 2 * LIMIT)["index"]
    assert session.charged() == taken(machine) == 0
    probe.do("drop", index)


@pytest.mark.parametrize("path", PATHS)
def test_each_form_is_stopped_exactly_at_the_limit(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        begin(session, probe)
        for form in TAKING:
            piece = CHUNK if form in POOLED else 4 * MIB
            index = probe.do("hold", form, piece)["index"]
            rest = LIMIT - session.charged()
            probe.do("drop", index)
            held = [probe.do("hold", "linear", rest - rest % PAGE)["index"]]
            if rest % PAGE:
                held.append(probe.do("hold", "array", rest % PAGE)["index"])
            held.append(probe.do("hold", form, piece)["index"])
            assert session.charged() == taken(machine) == LIMIT, form
            if form in SHARING:
                held.append(probe.do("hold", form, piece)["index"])
            else:
                probe.do("hold", form, piece, expect=OUT_OF_MEMORY)
                probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
            assert session.charged() == taken(machine) == LIMIT, form
            for index in reversed(held):
                probe.do("drop", index)
            assert session.charged() == taken(machine) == 0, form


def test_what_the_driver_refuses_is_not_charged_in_any_form(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    with machine.start({}, preload="") as stranger:
        stranger.do("init")
        stranger.do("retain", 0)
        stranger.do("hold", "linear", machine.gpu()["total_memory"])
        begin(session, probe)
        for form in TAKING.keys() - {"managed"}:  # which the host has room for
            probe.do("hold", form, 8 * MIB, expect=OUT_OF_MEMORY)
            assert session.charged() == 0, form


# On which GPU each form takes memory while the second is current.
OF_CURRENT = ["linear", "pitched", "managed", "stream", "array", "mipmapped", "external"]
OF_FIRST = ["stream-of-first", "pool", "physical", "mapped", "graph"]


def test_each_form_is_charged_to_the_gpu_that_it_takes_memory_of(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    with (
        FakeSession(folder, [machine.grant(1), machine.grant(0)]) as session,
        machine.start(session.environment) as probe,
    ):
        begin(session, probe)
        session.open(1)
        probe.do("retain", 1)
        for forms, cell, gpu in ((OF_CURRENT, 0, 1), (OF_FIRST, 1, 0)):
            for form in forms:
                index = probe.do("hold", form, 8 * MIB)["index"]
                expected = machine.gpu(gpu)["used_memory"]
                assert session.charged(cell) == expected > 0, form
                assert session.charged(1 - cell) == 0, form
                probe.do("drop", index)
                assert session.charged(cell) == machine.gpu(gpu)["used_memory"] == 0, form


@pytest.mark.parametrize("path", PATHS)
def test_memory_of_the_host_is_counted_while_it_is_pinned(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        begin(session, probe)
        held = [probe.do("hold", form, 3 * MIB)["index"] for form in ("host", "host-registered")]
        assert pinned(session) == 6 * MIB
        probe.do("drop", held.pop())
        assert pinned(session) == 3 * MIB
        probe.do("hold", "host-registered", 0, expect=INVALID_VALUE)
        assert pinned(session) == 3 * MIB
        probe.do("release", 0)
        assert pinned(session) == 0, "it ends with its context"


def pinned(session: FakeSession) -> int:
    return counters.read(session.counters)[0].host_memory_bytes
