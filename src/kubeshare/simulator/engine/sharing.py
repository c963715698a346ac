"""Divides GPUs among the jobs that run on them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from kubeshare.core.ledger.holder import Holder
from kubeshare.core.units import MICROS
from kubeshare.simulator.engine.progress import Running, Slowdowns, pace_of, shares_of


class Sharing:
    """Divides the time of each GPU among the jobs that have started there.

    Args:
        holders_of: the shares of a device, by its id.
        slowdowns: between kinds of jobs.
        on_speed: called with a job whose speed has changed.

    Attributes:
        used_micros: of all GPUs, in use.
    """

    def __init__(
        self,
        holders_of: Callable[[str], Sequence[Holder]],
        slowdowns: Slowdowns,
        on_speed: Callable[[Running], None],
    ) -> None:
        self._holders_of, self._slowdowns, self._on_speed = holders_of, slowdowns, on_speed
        self._on: dict[str, dict[str, Running]] = defaultdict(dict)  # by device, then uid
        self._used: dict[str, int] = {}  # micros, by device
        self.used_micros = 0

    def start(self, running: Running, now: float) -> None:
        """Let a job begin its work."""
        running.since_s = now
        for device_id in running.devices:
            self._on[device_id][running.job.uid] = running
        self._divide([running], running.devices, now)

    def leave(self, gone: Iterable[Running], now: float) -> None:
        """Let jobs stop, whose shares have been released."""
        # Not a set: the order of ends at one time follows from it, and must not differ by run.
        devices = dict.fromkeys(each for running in gone for each in running.devices)
        for running in gone:
            for device_id in running.devices:
                self._on[device_id].pop(running.job.uid, None)
        self._divide([], devices, now)

    def _divide(self, started: list[Running], changed: Iterable[str], now: float) -> None:
        """Divide GPUs anew, and change the speeds of the jobs there."""
        speeds = {running.job.uid: running for running in started}
        for device_id in changed:
            speeds |= self._on[device_id]
        devices = {*changed, *(each for one in speeds.values() for each in one.devices)}
        shares = {each: self._shares(each) for each in devices}
        for uid, running in speeds.items():
            self._pace(running, [shares[each][uid] for each in running.devices], now)
            if running.requests is not None:
                running.requests.advance(now, self._capacity(running))
        for device_id in devices:
            self._account(device_id)

    def _pace(self, running: Running, shares: list[int], now: float) -> None:
        """Give a job the speed of its present shares."""
        pace = pace_of(running, shares)
        speed = pace / self._slowdown(running)
        if (pace, speed) == (running.pace, running.speed):
            return
        running.advance(now)
        running.pace, running.speed = pace, speed
        self._on_speed(running)

    def _capacity(self, running: Running) -> float:
        """The GPUs that a job would get if it always had work, less what co-runners slow it."""
        uid = running.job.uid
        most = min(self._shares(each, eager=uid)[uid] for each in running.devices)
        return most / MICROS / self._slowdown(running)

    def _slowdown(self, running: Running) -> float:
        """The factor of the worst of the jobs on the same GPUs."""
        if not self._slowdowns:
            return 1.0
        kinds = {
            other.job.kind
            for each in running.devices
            for other in self._on[each].values()
            if other is not running
        }
        own = running.job.kind
        return max((self._slowdowns.get((own, other), 1.0) for other in kinds), default=1.0)

    def _shares(self, device_id: str, eager: str = "") -> dict[str, int]:
        """The micros of a device that each job that runs there gets, by uid.

        Args:
            device_id: of the device.
            eager: a job that takes all that it can have, whatever it needs.
        """
        on = self._on[device_id]
        if not on:
            return {}
        holders = self._holders_of(device_id)
        wants: dict[str, tuple[int, int]] = {}
        for holder in holders:
            running = on.get(holder.demand)
            if running is not None:
                alone = holder.limit_alone_micros if len(holders) == 1 else None
                limit = holder.limit_micros if alone is None else alone
                asked = holder.request_micros, limit
                wants[holder.demand] = asked if holder.demand == eager else running.wants(*asked)
        return dict(zip(wants, shares_of(tuple(wants.values())), strict=True))

    def _account(self, device_id: str) -> None:
        """Account for how much of a device is in use."""
        on = self._on[device_id]
        self.used_micros -= self._used.pop(device_id, 0)
        if not on:
            del self._on[device_id]
            return
        # A job that waits for its slowest GPU leaves the others idle.
        used = sum(int(each.pace * each.job.need_micros) for each in on.values())
        self._used[device_id] = min(MICROS, used)
        self.used_micros += self._used[device_id]
