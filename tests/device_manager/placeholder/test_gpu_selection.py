"""The steps by which a vGPU gets a certain GPU of a device plugin."""

import random

import pytest

from kubeshare.device_manager.placeholder.gpu_selection import Filler, Gpu, Seeker, Step, plan

A = Seeker(vgpu="a", accepts=frozenset(["1"]))
FREE = [Gpu(uuid="0"), Gpu(uuid="1")]
FILLED = [Gpu(uuid="0", filler="f0"), Gpu(uuid="1", filler="f1")]
FILLERS = [Filler(name="f0"), Filler(name="f1")]


def test_fillers_take_all_free_gpus() -> None:
    assert plan([A], FREE, [], 2) == Step(fill=2)
    assert plan([A], FREE, [Filler(name="f", bound=False)], 2) == Step(fill=1)


def test_nothing_is_done_before_all_fillers_are_bound_and_reported() -> None:
    unbound = [Filler(name="f0", bound=False), Filler(name="f1", bound=False)]
    assert plan([A], FREE, unbound, 2) == Step()
    assert plan([A], FREE, FILLERS, 0) == Step()
    assert plan([A], FILLED, FILLERS, 0, unreported=1) == Step()
    assert plan([A], FILLED, FILLERS[:1], 1, unreported=1) == Step()


def test_the_filler_that_has_the_right_gpu_is_deleted_and_the_placeholder_takes_its_place() -> None:
    assert plan([A], FILLED, FILLERS, 0) == Step(remove=("f1",))
    ending = [FILLERS[0], Filler(name="f1", ending=True)]
    assert plan([A], FILLED, ending, 0) == Step()
    assert plan([A], FILLED, FILLERS[:1], 1) == Step(create="a")


def test_a_placeholder_is_created_at_once_where_any_free_gpu_is_right() -> None:
    seeker = Seeker(vgpu="a", accepts=frozenset(["0", "1"]))
    assert plan([seeker], FREE, [], 2) == Step(create="a")


def test_a_filler_that_gets_no_gpu_is_deleted() -> None:
    late = [*FILLERS, Filler(name="f2", bound=False)]
    assert plan([A], FILLED, late, 0) == Step(remove=("f2",))
    competing = [FILLERS[0], Filler(name="f2", bound=False)]
    assert plan([A], FILLED, competing, 1) == Step(remove=("f2",))


def test_one_vgpu_after_the_other() -> None:
    placed = Seeker(vgpu="b", accepts=frozenset(["0"]), has_placeholder=True)
    assert plan([A, placed], FILLED, FILLERS, 0) == Step()


def test_the_fillers_go_when_no_vgpu_seeks_a_gpu_or_can_get_one() -> None:
    assert plan([], FILLED, FILLERS, 0) == Step(remove=("f0", "f1"))
    taken = [FILLED[0]]
    assert plan([A], taken, FILLERS, 0) == Step(remove=("f0", "f1"))


def test_a_misplaced_placeholder_goes_first() -> None:
    wrong = Seeker(vgpu="a", accepts=frozenset(["1"]), has_placeholder=True, misplaced=True)
    assert plan([wrong], FREE, [], 1) == Step(release="a")
    assert plan([wrong], [], [], 0) == Step(release="a")


@pytest.mark.parametrize("seed", range(200))
def test_every_vgpu_gets_its_gpu_whatever_the_plugin_chooses(seed: int) -> None:
    """A plugin that gives any free GPU; steps and reports of the node come in any order."""
    draw = random.Random(seed)
    uuids = [str(number) for number in range(draw.randint(1, 8))]
    wanted = {f"v{uuid}": uuid for uuid in draw.sample(uuids, draw.randint(1, len(uuids)))}
    native = set(draw.sample(uuids, draw.randint(0, 1))) - set(wanted.values())
    has: dict[str, str] = {}  # filler -> GPU
    reported: dict[str, str] = {}
    placed: dict[str, str] = {}  # vGPU -> GPU
    for step_number in range(200):
        if draw.random() < 0.6:
            reported = dict(has)
        taken = set(placed.values()) | native
        by_gpu = {gpu: filler for filler, gpu in reported.items()}
        gpus = [Gpu(uuid=u, filler=by_gpu.get(u, "")) for u in uuids if u not in taken]
        free = [u for u in uuids if u not in taken and u not in has.values()]
        seekers = [
            Seeker(vgpu=name, accepts=frozenset([uuid]))
            for name, uuid in sorted(wanted.items())
            if name not in placed
        ]
        step = plan(
            seekers,
            gpus,
            [Filler(name=name) for name in sorted(has)],
            len(free),
            unreported=len(has) - sum(filler in has for filler in reported),
        )
        for name in step.remove:
            del has[name]
        for number in range(step.fill):
            has[f"f{step_number}-{number}"] = free.pop(draw.randrange(len(free)))
        if step.create:
            placed[step.create] = draw.choice(free)
            assert placed[step.create] == wanted[step.create]
        if not seekers and not has:
            break
    assert placed == wanted
    assert not has
