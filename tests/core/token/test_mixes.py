"""Twenty mixes of shares and kernels: each share is held within two points, as in `bench`."""

import sys

import pytest
from bench.tokens.mixes import ERROR_GOAL, JAIN_GOAL, MIXES, Mix, jain, worst_error

from core.token.simulation import GPU, MS, SECOND, Simulation
from kubeshare.core.token import Action, Open

_LATE_NS = 300_000
"""At most, from an open gate to the first kernel, and from the end of the last one to its report:
a thread of a busy machine wakes late."""

_QUEUED_NS = 20 * MS
"""So much work is queued at most while others wait."""

_SECONDS = 200
"""In windows one after another, each as long as in `bench`; one at least."""

USED = 0.97
"""Of the GPU; the rest is the time in which threads wake."""


class Kernels(Simulation):
    """Jobs that run kernels one after another; knows how long the GPU really worked for each."""

    def __init__(self, mix: Mix) -> None:
        super().__init__(seed=1)
        self.worked_ns = dict.fromkeys(mix.targets, 0)
        self._since: dict[str, int] = {}
        for (name, request), kernel_us in zip(
            zip(mix.targets, mix.requests, strict=True), mix.kernels, strict=True
        ):
            job = self.join(name, request, mix.limit, is_idle=True)
            job.overrun_ns = lambda name=name, ns=kernel_us * 1000: self._left_ns(name, ns)  # type: ignore[misc]
            self._want(name)

    def shares_of_kernels(self, for_ns: int) -> dict[str, float]:
        """Run, and say which part of the time the GPU worked for each job."""
        before = self._worked_by_now()
        self.run(for_ns)
        after = self._worked_by_now()
        return {name: (after[name] - before[name]) / for_ns for name in after}

    def _worked_by_now(self) -> dict[str, int]:
        return {
            name: worked + max(0, self.now - self._since.get(name, self.now))
            for name, worked in self.worked_ns.items()
        }

    def _left_ns(self, name: str, kernel_ns: int) -> int:
        """The rest of the running kernel, and those that are queued behind it."""
        queued = self.random.randint(0, _QUEUED_NS // kernel_ns)
        running_ns = self.now - self._since[name]
        return kernel_ns - running_ns % kernel_ns + queued * kernel_ns if running_ns > 0 else 0

    def _binder(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Open):
                late_ns = self.random.randrange(_LATE_NS)
                self._since.setdefault(action.member, self.now + late_ns)
        super()._binder(actions)

    def _drained(self, name: str, gpu: str) -> None:
        end = self.now
        self.worked_ns[name] += max(0, end - self._since.pop(name))
        self.at(
            self.random.randrange(_LATE_NS),
            lambda: self._binder(self.arbiter.drained(name, gpu, end, self.now)),
        )


@pytest.mark.parametrize("mix", MIXES, ids=[mix.title for mix in MIXES])
def test_each_share_is_held_within_two_points(mix: Mix, capsys: pytest.CaptureFixture[str]) -> None:
    simulation = Kernels(mix)
    simulation.run(5 * SECOND)

    windows = [
        simulation.shares_of_kernels(round(mix.window_s * SECOND))
        for _ in range(max(1, round(_SECONDS / mix.window_s)))
    ]

    error = max(worst_error(shares, mix.targets) for shares in windows)
    index = min(jain(shares, mix.targets) for shares in windows)
    with capsys.disabled():
        sys.stdout.write(f" {error:.4f} {index:.4f}")
    assert error <= ERROR_GOAL
    assert index >= JAIN_GOAL
    assert all(sum(shares.values()) >= USED * sum(mix.targets.values()) for shares in windows)
    assert simulation.arbiter.tally("job-0", GPU).bypasses == 0


def test_the_table_has_twenty_mixes_of_kernels_from_ten_microseconds_to_two_seconds() -> None:
    kernels = [kernel for mix in MIXES for kernel in mix.kernels_us]
    assert len(set(MIXES)) == 20
    assert (min(kernels), max(kernels)) == (10, 2_000_000)
