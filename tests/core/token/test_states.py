"""Whatever happens in whatever order, what must always hold holds."""

import pickle
import sys
from collections import deque
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from core.token.simulation import MS, SECOND
from kubeshare.core.token import Action, Amounts, Arbiter, Close, Extend, MemberView, Open, Shut
from kubeshare.core.token.share import ASKS_AGAIN_NS

GPUS = ("gpu-0", "gpu-1")
BOUNDS = (300_000, 600_000)

REPORT_NS = 30 * MS
"""So much less than it worked a report makes a member charged at most."""

Event = tuple[str, str, str, int]
"""What happens, to which member, on which GPU, and what it reports, ns from now."""


class Watcher:
    """Feeds an arbiter, and checks after each event what must always hold.

    Args:
        shares: of each member.
    """

    def __init__(self, shares: dict[str, dict[str, Amounts]]) -> None:
        self.arbiter = Arbiter()
        self.shares = shares
        self.now = 0
        self.members: list[str] = []  # a set has another order in each run, and so another state
        self.gates: dict[tuple[str, str], str] = {}  # (member, GPU) -> open or closing
        self.wanted: dict[str, set[str]] = {}  # of each that waits, the GPUs it wants together
        self.owed: list[tuple[str, str]] = []  # all who could report have left
        self.works_since: dict[tuple[str, str], int] = {}  # with the work that goes on past a turn
        self.worked: dict[tuple[str, str], int] = {}
        self.reports: dict[tuple[str, str], int] = {}
        self.shut: dict[tuple[str, str], int] = {}

    def feed(self, event: Event) -> list[Action]:
        """Feed one event; those that the daemon would never send are left out."""
        actions = self._fed(event)
        grants: dict[str, set[str]] = {}
        for action in actions:
            self._check(action)
            if isinstance(action, Open) and not action.again:
                grants.setdefault(action.member, set()).add(action.gpu)
        for name, gpus in grants.items():
            wanted = {gpu for gpu in self.wanted[name] if not self._is_whole(name, gpu)}
            assert wanted <= gpus or not wanted & gpus, "several GPUs are granted together"
        for action in actions:
            if isinstance(action, Open):
                self.wanted.get(action.member, set()).discard(action.gpu)
        held = {(self.arbiter.holder(gpu), gpu) for gpu in GPUS if self.arbiter.holder(gpu)}
        assert set(self.gates) == held
        for view in self.arbiter.views(self.now):
            assert 0 <= view.share <= 1
            assert 0 <= view.recent_share <= 1
            self._check_charge(view)
        self._check_work_is_conserved()
        return actions

    def _fed(self, event: Event) -> list[Action]:
        what, name, gpu, report = event
        now = self.now
        if what == "tick":
            return self.arbiter.tick(now)
        if (what == "add") == (name in self.members):
            return []
        if what == "add":
            self.members = sorted([*self.members, name])
            return self.arbiter.add(name, self.shares[name], now)
        if what == "remove":
            self.members.remove(name)
        if what in ("want", "want one"):
            return self._want(name, set(self.shares[name]) if what == "want" else {gpu})
        about = {
            "drained": (gpu, now + report, now),
            "idle": (gpu, now),
            "busy": (gpu, now),
            "left": (gpu, now),
        }.get(what, (now,))
        if gpu not in self.shares[name] and len(about) > 1:
            return []
        leaving = [key for key in self._leaving(what, name, gpu) if key in self.works_since]
        if what in ("drained", "idle"):
            self._report((name, gpu), ends=what == "drained")
        actions: list[Action] = getattr(self.arbiter, what)(name, *about)
        for key in leaving:
            self._end_work(key)
        self._note(what, name, leaving)
        if what in ("gone", "remove"):
            self.wanted.pop(name, None)
            shut = {action.gpu for action in actions if isinstance(action, Shut)}
            assert {gpu for member, gpu in self.gates if member == name} <= shut
        return actions

    def _leaving(self, what: str, name: str, gpu: str) -> list[tuple[str, str]]:
        """Where processes of a member leave by this event."""
        if what == "left" and self.gates.get((name, gpu)) != "open":
            return [(name, gpu)]
        return [(name, each) for each in self.shares[name]] if what in ("gone", "remove") else []

    def _note(self, what: str, name: str, left: list[tuple[str, str]]) -> None:
        """What the member owes."""
        own = [(name, each) for each in self.shares[name]]
        self.owed = sorted({*self.owed, *left})
        if what in ("connected", "remove"):
            for key in own:
                if what == "connected" and key in self.owed:
                    self.works_since.setdefault(key, self.now)
            self.owed = [key for key in self.owed if key not in own]
        if what == "remove":
            for key in own:
                self.worked.pop(key, None)
                self.reports.pop(key, None)

    def _want(self, name: str, gpus: set[str]) -> list[Action]:
        if not gpus <= self.shares[name].keys():
            return []
        if not all(self.gates.get((name, gpu)) == "open" for gpu in gpus):
            self.wanted[name] = gpus
        if name in {owing for owing, _ in self.owed}:
            self.feed(("connected", name, "", 0))
        return self.arbiter.want(name, self.now, gpus)

    def _check(self, action: Action) -> None:
        key = (action.member, action.gpu)
        if isinstance(action, Open):
            others = [member for member, gpu in self.gates if gpu == action.gpu]
            assert others == ([action.member] if action.again else [])
            assert action.lease_end_ns > self.now
            self.gates[key] = "open"
            self.works_since.setdefault(key, self.now)
        elif isinstance(action, Close):
            assert self.gates[key] == "open"
            self.gates[key] = "closing"
        elif isinstance(action, Shut):
            del self.gates[key]
            self.shut[key] = self.now
            if not action.bypassed:
                self._end_work(key)
        else:
            assert self.gates[key] == "open"
            assert not isinstance(action, Extend) or action.lease_end_ns > self.now

    def _report(self, key: tuple[str, str], *, ends: bool) -> None:
        """A report that it is idle, or that its work has come to an end."""
        if key not in self.works_since:
            return
        self.reports[key] = self.reports.get(key, 0) + 1
        if ends and self.gates.get(key) != "open":
            self.owed = [owed for owed in self.owed if owed != key]
        if ends and key not in self.gates:
            self._end_work(key)

    def _end_work(self, key: tuple[str, str]) -> None:
        if key in self.works_since:
            self.worked[key] = self.worked.get(key, 0) + self.now - self.works_since.pop(key)

    def _check_charge(self, view: MemberView) -> None:
        """What it worked, past its turns too, less what it may have been idle by its reports."""
        key = (view.name, view.gpu)
        worked = self.worked.get(key, 0) + self.now - self.works_since.get(key, self.now)
        assert 0 <= view.charged_ns <= worked
        own = self.shares[view.name]
        if len(own) == 1 and own[view.gpu][1] < 1_000_000:
            assert view.charged_ns >= worked - REPORT_NS * self.reports.get(key, 0)

    def _check_work_is_conserved(self) -> None:
        """No GPU is free while an eligible member wants it alone, except just before a gang."""
        for view in self.arbiter.views(self.now):
            if view.state == "waiting" and len(self.shares[view.name]) == 1:
                assert self.arbiter.holder(view.gpu) is not None or self._is_gang_near(view.gpu)

    def _is_whole(self, name: str, gpu: str) -> bool:
        """Whether it is granted by itself: no other member has a share, and no limit binds."""
        neighbours = [other for other in self.members if gpu in self.shares[other]]
        return neighbours == [name] and max(self.shares[name][gpu][1:]) == 1_000_000

    def _is_gang_near(self, gpu: str) -> bool:
        """Whether one waits, or drains, or has drained just now and may wait again."""
        if any(len(gpus) > 1 and gpu in gpus for gpus in self.wanted.values()):
            return True
        gangs = [name for name in self.members if gpu in self.shares[name]]
        return any(
            (name, each) in self.gates
            or self.now - self.shut.get((name, each), -SECOND) < ASKS_AGAIN_NS
            for name in gangs
            for each in self.shares[name]
            if each != gpu
        )


SINGLES: dict[str, dict[str, Amounts]] = {name: {GPUS[0]: BOUNDS} for name in "abc"}
GANGS: dict[str, dict[str, Amounts]] = {
    "a": {GPUS[0]: BOUNDS},
    "b": {GPUS[1]: (300_000, 1_000_000)},
    "c": dict.fromkeys(GPUS, (300_000, 1_000_000)),
    "d": dict.fromkeys(GPUS, (*BOUNDS, 1_000_000)),
}
PROMPT: dict[str, dict[str, Amounts]] = GANGS | {"a": {GPUS[0]: (*BOUNDS, 0, True)}}

events = st.tuples(
    st.sampled_from(
        [
            *("want", "want one", "idle", "drained", "busy", "tick"),
            *("gone", "left", "connected", "remove", "add"),
        ]
    ),
    st.sampled_from("abcd"),
    st.sampled_from(GPUS),
    st.integers(-SECOND, SECOND),
)


@pytest.mark.slow
@settings(max_examples=samples.count(whole=200, sample=60), deadline=None)
@given(
    st.lists(st.tuples(events, st.integers(0, 300 * MS)), max_size=80),
    st.sampled_from([GANGS, PROMPT]),
)
def test_whatever_happens_each_gpu_has_one_holder_and_gangs_have_all_or_none(
    happened: list[tuple[Event, int]], shares: dict[str, dict[str, Amounts]]
) -> None:
    watcher = Watcher(shares)
    for event, elapsed in happened:
        watcher.now += elapsed
        watcher.feed(event)


def actions_of(members: str, shares: dict[str, dict[str, Amounts]]) -> list[Event]:
    """The events of each member; an answer is about each of its GPUs, a want of all or one."""
    found: list[Event] = [("tick", "", "", 0)]
    for name in members:
        found += [(what, name, "", 0) for what in ("want", "gone", "add", "remove")]
        answers = product(("drained", "idle", "busy"), sorted(shares[name]))
        found += [(what, name, gpu, 0) for what, gpu in answers]
        if len(shares[name]) > 1:
            found += [("want one", name, gpu, 0) for gpu in sorted(shares[name])]
    return found


def explore(shares: dict[str, dict[str, Amounts]], depth: int) -> tuple[int, list[bytes]]:
    """Try every order of events and of the times at which the arbiter acts by itself.

    States that differ in nothing are followed once. Returns how many events were
    fed, and the states that were reached.
    """
    happenings = actions_of("abc", shares)
    first = Watcher(shares)
    for name in shares:
        first.feed(("add", name, "", 0))
    if shares == {name: PROMPT[name] for name in shares}:
        first.now += SECOND  # in which it saves up enough
    start = pickle.dumps(first)
    seen, level, fed = {start: None}, [start], 0
    for _ in range(depth):
        following = []
        for state, happening in product(level, happenings):
            watcher: Watcher = pickle.loads(state)
            if happening[0] == "tick":
                watcher.now = watcher.arbiter.deadline() or watcher.now + 50 * MS
            watcher.feed(happening)
            fed += 1
            reached = pickle.dumps(watcher)
            if reached not in seen:
                seen[reached] = None
                following.append(reached)
        level = following
    return fed, list(seen)


def longest_wait_from(state: bytes) -> int:
    """How long those who wait do so from here on, ns, when all want always and drain at once."""
    watcher: Watcher = pickle.loads(state)
    served = {name for (name, _), gate in watcher.gates.items() if gate == "open"}
    start, waiting, longest = watcher.now, set(watcher.members) - served, 0
    todo: deque[Event] = deque(("want", name, "", 0) for name in watcher.members)
    todo += [("drained", *gate, 0) for gate, is_at in watcher.gates.items() if is_at == "closing"]
    hung = [view for view in watcher.arbiter.views(watcher.now) if view.state == "hung"]
    todo += [("drained", view.name, view.gpu, 0) for view in hung]
    todo += [("drained", *key, 0) for key in watcher.owed]
    while waiting:
        assert watcher.now < start + 30 * SECOND, f"{waiting} starve"
        if not todo:
            deadline = watcher.arbiter.deadline()
            assert deadline is not None, f"nothing will ever happen for {waiting}"
            watcher.now = max(watcher.now, deadline)
            todo.append(("tick", "", "", 0))
        for action in watcher.feed(todo.popleft()):
            if isinstance(action, Open) and action.member in waiting:
                waiting.discard(action.member)
                longest = watcher.now - start
            elif isinstance(action, Close):
                todo.append(("drained", action.member, action.gpu, 0))
            elif isinstance(action, Shut):
                todo.append(("want", action.member, "", 0))
    return longest


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("shares", "depth"),
    [
        (SINGLES, samples.count(whole=6, sample=5)),
        ({name: GANGS[name] for name in "abc"}, samples.count(whole=5, sample=4)),
        ({name: PROMPT[name] for name in "abc"}, samples.count(whole=5, sample=4)),
    ],
    ids=["one GPU", "a gang and its rivals", "a latency-sensitive rival"],
)
def test_every_order_of_events_of_three_members_keeps_what_must_hold(
    shares: dict[str, dict[str, Amounts]],
    depth: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fed, states = explore(shares, depth)
    longest = max(longest_wait_from(state) for state in states)

    with capsys.disabled():
        sys.stdout.write(
            f" {fed} events, {len(states)} states, longest wait from there {longest / 1e6:.0f} ms"
        )
    assert len(states) > 2_000
    assert longest <= 1_500 * MS
