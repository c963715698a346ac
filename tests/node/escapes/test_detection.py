"""Detection of processes that bypass the device library."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubeshare.node.cgroups import CgroupIds
from kubeshare.node.escapes.debounce import REPEAT_SECONDS, PersistentFindings
from kubeshare.node.escapes.detection import (
    COSTLY,
    FOREIGN,
    HUNG,
    MPS_CLIENT,
    OVER_LIMIT,
    UNHELD,
    Finding,
    GpuUse,
    Sample,
    detect,
    limit_of,
)
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedPod, GrantedShare
from kubeshare.tokens.overheads import StableOverheads

MIB = 1 << 20
GPUS = ("GPU-00000000-0000-4000-8000-00000000000a", "GPU-00000000-0000-4000-8000-00000000000b")
LIMIT = 1024 * MIB


def pod_uid(pod: str) -> str:
    return f"{pod}-uid"


def grant(pod: str = "a", claim: str = "", *, gpus: tuple[str, ...] = GPUS[:1]) -> Grant:
    parts = tuple(
        GrantedShare(
            uuid=uuid,
            memory_total_bytes=16 * LIMIT,
            request_micros=300_000,
            limit_micros=600_000,
            memory_bytes=LIMIT,
        )
        for uuid in gpus
    )
    named = GrantedPod(namespace="default", name=pod, uid=pod_uid(pod))
    return Grant(version=GRANT_VERSION, claim=claim or f"{pod}-claim", gpus=parts, pod=named)


def use(
    pid: int, memory: int | None = 0, pod: str = "a", *, gpu: str = GPUS[0], started: int = 1
) -> GpuUse:
    cgroup = CgroupIds((), (pod_uid(pod),))
    return GpuUse(uuid=gpu, pid=pid, started=started, memory_bytes=memory, cgroup=cgroup)


def look(*uses: GpuUse, **more: object) -> Sample:
    """A sample with pod ``a``'s grant; ``tracked`` are the bytes that each pid's library tracks."""
    tracked = more.pop("tracked", {})
    assert isinstance(tracked, dict)
    accounts = {"a-claim": {pid: {GPUS[0]: memory} for pid, memory in tracked.items()}}
    known: dict[str, object] = {
        "grants": (grant(),),
        "containers": {},
        "connected": {},
        "accounts": accounts,
    }
    return Sample(uses=uses, **(known | more))  # type: ignore[arg-type]


def found(what: Sample) -> list[tuple[str, int]]:
    return [(finding.reason, finding.pid) for finding in detect(what)[0]]


def test_a_process_with_an_account_is_held_and_so_is_one_with_a_connection() -> None:
    connected = {"a-claim": frozenset([2])}
    assert found(look(use(1), use(2), tracked={1: 0}, connected=connected)) == []


def test_a_process_of_a_granted_pod_that_has_neither_is_found_with_all_its_gpus() -> None:
    [over, unheld] = detect(look(use(7, 3 * MIB), use(7, 5 * MIB, gpu=GPUS[1])))[0]
    assert (over.reason, over.gpus, over.limit_bytes) == (
        OVER_LIMIT,
        GPUS[1:],
        0,
    )  # not granted at all
    assert unheld.reason == UNHELD
    assert unheld.gpus == GPUS
    assert unheld.used_bytes == 8 * MIB
    assert unheld.pod.name == "a"


def test_processes_of_other_pods_and_of_the_machine_are_nobodys_business() -> None:
    machine = msgspec.structs.replace(use(8, 99 * LIMIT), cgroup=CgroupIds())
    assert found(look(use(7, 99 * LIMIT, "b"), machine)) == []


def test_a_process_of_another_pod_that_has_the_claim_mounted_is_foreign_and_counts() -> None:
    foreign = msgspec.structs.replace(use(7, LIMIT, "b"), claims=("a-claim", "unknown"))
    own = use(1, MIB)
    connected = {"a-claim": frozenset({1, 7})}
    findings, overheads = detect(look(own, foreign, connected=connected))
    assert [(one.reason, one.pid) for one in findings] == [(FOREIGN, 7), (OVER_LIMIT, 7)]
    assert all(one.pod.name == "a" for one in findings)
    assert findings[1].used_bytes == LIMIT + MIB
    assert overheads == {("a-claim", GPUS[0]): LIMIT + MIB}


def test_a_pod_that_mounts_anothers_claim_beside_its_own_is_no_stranger_to_its_own_gpu() -> None:
    grants = (grant("a"), grant("b", gpus=GPUS[1:]))
    connected = {"b-claim": frozenset({7})}
    on_own = msgspec.structs.replace(use(7, 0, "b", gpu=GPUS[1]), claims=("a-claim", "b-claim"))
    assert found(look(on_own, grants=grants, connected=connected)) == []
    on_other = msgspec.structs.replace(on_own, uuid=GPUS[0])
    assert found(look(on_other, grants=grants, connected=connected)) == [(FOREIGN, 7)]


def test_of_two_grants_of_a_pod_on_one_gpu_the_mounted_one_is_used() -> None:
    grants = (grant("a", "c.left"), grant("a", "c.right"))
    left = msgspec.structs.replace(use(1, LIMIT), claims=("c.left",))
    right = msgspec.structs.replace(use(2, LIMIT + MIB), claims=("c.right",))
    unheld = msgspec.structs.replace(use(3, 0), claims=("c.right",))
    connected = {"c.left": frozenset({1}), "c.right": frozenset({2})}
    accounts = {"c.left": {1: {GPUS[0]: MIB}}, "c.right": {2: {GPUS[0]: MIB}}}
    sample = look(left, right, unheld, grants=grants, connected=connected, accounts=accounts)
    findings, overheads = detect(sample)
    assert [(one.reason, one.claim, one.pid) for one in findings] == [
        (OVER_LIMIT, "c.right", 3),
        (UNHELD, "c.right", 3),
    ]
    assert findings[0].used_bytes == LIMIT + MIB, "each grant has a limit of its own"
    assert overheads == {("c.left", GPUS[0]): LIMIT - MIB, ("c.right", GPUS[0]): LIMIT}


def test_a_client_of_an_mps_server_is_found_unless_something_worse_is() -> None:
    client = msgspec.structs.replace(use(1), mps=True)
    elsewhere = msgspec.structs.replace(client, uuid=GPUS[1], mps=False)
    held = {"a-claim": frozenset({1})}
    [found_on_both] = detect(look(client, elsewhere, grants=(grant(gpus=GPUS),), connected=held))[0]
    assert (found_on_both.reason, found_on_both.gpus) == (MPS_CLIENT, GPUS)
    assert found(look(client)) == [(UNHELD, 1)]
    foreign = msgspec.structs.replace(use(1, 0, "b"), claims=("a-claim",), mps=True)
    assert found(look(foreign, connected=held)) == [(FOREIGN, 1)]


def test_where_counters_are_not_read_who_has_them_mapped_is_held_and_others_are_not() -> None:
    known = {"mapped": {"a-claim": frozenset({1, 3})}, "costly": frozenset({"a-claim"})}
    sample = look(use(1), use(2), use(3, 2 * LIMIT), **known)
    assert [(one.reason, one.pid, one.is_certain) for one in detect(sample)[0]] == [
        (COSTLY, 2, False),
        (OVER_LIMIT, 2, True),
        (UNHELD, 2, True),
    ]
    assert found(look(use(1), mapped={"b-claim": frozenset({1})})) == [(UNHELD, 1)]


def test_costly_counters_are_found_though_no_process_uses_the_gpu() -> None:
    costly = frozenset({"a-claim"})
    sample = look(use(1, pod="b"), grants=(grant(gpus=GPUS), grant("b")), costly=costly)
    assert [
        (one.reason, one.pod.name, one.pid, one.gpus, one.used_bytes, one.is_certain)
        for one in detect(sample)[0]
        if one.reason != UNHELD
    ] == [(COSTLY, "a", 0, (gpu,), 0, False) for gpu in GPUS]


def test_costly_counters_of_a_grant_that_names_no_pod_are_nobodys() -> None:
    podless = structs.replace(grant(), pod=None)
    assert detect(look(grants=(podless,), costly=frozenset({"a-claim"})))[0] == []


def test_work_that_does_not_end_is_found_with_its_process_where_it_is_known() -> None:
    connected = {"a-claim": frozenset({1, 2})}

    def hung(*uses: GpuUse, pids: frozenset[int] = frozenset()) -> list[tuple[str, int, bool]]:
        known = {"connected": connected, "hung": {"a-claim": {GPUS[0]: pids}}}
        return [(one.reason, one.pid, one.is_certain) for one in detect(look(*uses, **known))[0]]

    assert hung(use(1)) == [(HUNG, 1, True)]
    assert hung(use(1), use(2)) == [(HUNG, 2, False)]
    assert hung(use(1), use(2), pids=frozenset({1})) == [(HUNG, 1, True)]
    assert hung(use(1), use(3)) == [(HUNG, 1, True), (UNHELD, 3, True)], "3 has no library"
    assert hung(use(1, gpu=GPUS[1])) == [], "that GPU does other work"
    assert hung() == []


def test_a_grant_without_a_memory_limit_is_not_over_it() -> None:
    known = grant()
    (share,) = known.gpus
    lifted = msgspec.structs.replace(share, memory_limit_bytes=16 * LIMIT)
    sample = look(use(1, 9 * LIMIT), tracked={1: 9 * LIMIT}, connected={"a-claim": frozenset({1})})
    assert [one.reason for one in detect(sample)[0]] == [OVER_LIMIT]
    grants = (msgspec.structs.replace(known, gpus=(lifted,)),)
    assert detect(msgspec.structs.replace(sample, grants=grants))[0] == []


def test_a_gpu_that_only_the_other_container_may_use_is_charged_to_its_grant() -> None:
    grants = (grant("a", "c.left"), grant("a", "c.right", gpus=GPUS[1:]))
    strays = msgspec.structs.replace(use(1, 2 * LIMIT), claims=("c.right",))
    findings, _ = detect(look(strays, grants=grants, connected={"c.right": frozenset({1})}))
    assert [(one.reason, one.claim) for one in findings] == [(OVER_LIMIT, "c.left")]


def test_a_process_of_the_machine_that_has_the_claim_mounted_is_not_of_another_pod() -> None:
    entered = msgspec.structs.replace(use(7, MIB), cgroup=CgroupIds(), claims=("a-claim",))
    connected = {"a-claim": frozenset({7})}
    assert found(look(entered, connected=connected)) == []
    assert detect(look(entered, connected=connected))[1] == {("a-claim", GPUS[0]): MIB}


def test_the_outermost_container_that_is_known_says_whose_it_is() -> None:
    containers = {"outer": (pod_uid("a"), "main"), "inner": (pod_uid("b"), "theirs")}
    cgroup = CgroupIds(("node", "outer", "inner"), (pod_uid("b"),))
    there = msgspec.structs.replace(use(7), cgroup=cgroup)
    both = (grant("a"), grant("b"))
    [finding] = detect(look(there, containers=containers, grants=both))[0]
    assert (finding.claim, finding.container) == ("a-claim", "main")


def test_an_account_of_another_pods_claim_holds_nobody() -> None:
    accounts = {"b-claim": {7: {GPUS[0]: 0}}}
    assert found(look(use(7), grants=(grant("a"), grant("b")), accounts=accounts)) == [(UNHELD, 7)]


def test_memory_over_the_limit_is_the_doing_of_whom_the_library_tracks_least() -> None:
    within = look(use(1, LIMIT - 5 * MIB), use(2, 5 * MIB), tracked={1: LIMIT - 5 * MIB, 2: 0})
    assert found(within) == []
    over = look(use(1, LIMIT - 5 * MIB), use(2, 6 * MIB), tracked={1: LIMIT - 5 * MIB, 2: 0})
    [finding] = detect(over)[0]
    assert (finding.reason, finding.pid) == (OVER_LIMIT, 2)
    assert (finding.used_bytes, finding.limit_bytes) == (LIMIT + MIB, LIMIT)


def test_one_without_the_library_is_suspected_before_one_with_it() -> None:
    over = look(use(1, LIMIT), use(2, MIB), tracked={1: 0})
    assert found(over) == [(OVER_LIMIT, 2), (UNHELD, 2)]


def test_the_overhead_is_what_the_driver_counts_beyond_what_is_tracked() -> None:
    overheads = detect(look(use(1, 70 * MIB), use(2, 30 * MIB), tracked={1: 60 * MIB}))[1]
    assert overheads == {("a-claim", GPUS[0]): 40 * MIB}
    overheads = detect(look(use(1, 70 * MIB), tracked={1: 90 * MIB}))[1]
    assert overheads == {("a-claim", GPUS[0]): 0}


def test_counters_that_a_process_has_written_over_hide_nothing_and_cost_it_nobody_else() -> None:
    uses = (use(1, 2 * LIMIT), use(2, MIB, "b"))
    for tracked in (0, 7 * LIMIT):
        findings, overheads = detect(look(*uses, tracked={1: tracked}))
        assert [(one.reason, one.pid, one.used_bytes) for one in findings] == [
            (OVER_LIMIT, 1, 2 * LIMIT)
        ]
        assert overheads == {("a-claim", GPUS[0]): max(0, 2 * LIMIT - tracked)}


def test_where_the_driver_does_not_say_no_overhead_is_known() -> None:
    assert detect(look(use(1, None), tracked={1: 0}))[1] == {}


PODS = st.sampled_from(["a", "b", "c"])
USES = st.lists(
    st.builds(
        use,
        st.integers(1, 6),
        st.one_of(st.none(), st.integers(0, 2 * LIMIT)),
        PODS,
        gpu=st.sampled_from(GPUS),
        started=st.just(1),
    ),
    max_size=8,
    unique_by=lambda one: (one.pid, one.uuid),
)
ACCOUNTS = st.dictionaries(
    st.sampled_from(["a-claim", "b-claim", "a-second"]),
    st.dictionaries(
        st.integers(1, 6),
        st.dictionaries(st.sampled_from(GPUS), st.integers(0, LIMIT)),
        max_size=4,
    ),
)
CONNECTED = st.dictionaries(
    st.sampled_from(["a-claim", "b-claim"]), st.frozensets(st.integers(1, 6))
)
GRANTS = (grant("a"), grant("a", "a-second", gpus=GPUS[1:]), grant("b", gpus=GPUS))


@settings(deadline=None)
@given(USES, ACCOUNTS, CONNECTED, st.randoms(use_true_random=False))
def test_whatever_is_seen_the_findings_are_those_that_the_words_say(
    uses: list[GpuUse],
    accounts: dict[str, dict[int, dict[str, int]]],
    connected: dict[str, frozenset[int]],
    order: random.Random,
) -> None:
    claims = {"a": ("a-claim", "a-second"), "b": ("b-claim",), "c": ()}
    seen = look(*uses, grants=GRANTS, accounts=accounts, connected=connected)
    findings, overheads = detect(seen)

    def held(pid: int, pod: str) -> bool:
        return any(
            pid in accounts.get(claim, {}) or pid in connected.get(claim, ())
            for claim in claims[pod]
        )

    unheld = {
        (one.pid, pod)
        for one in uses
        if (pod := one.cgroup.pods[0].removesuffix("-uid")) != "c" and not held(one.pid, pod)
    }
    assert {(each.pid, each.pod.name) for each in findings if each.reason == UNHELD} == unheld
    assert all(each.pod.name != "c" for each in findings)
    for each in findings:
        if each.reason == OVER_LIMIT:
            [gpu] = each.gpus
            named = next(one for one in GRANTS if one.claim == each.claim)
            assert each.used_bytes > each.limit_bytes == limit_of(named, gpu)
    for (claim, gpu), overhead in overheads.items():
        tracked = sum(each.get(gpu, 0) for each in accounts.get(claim, {}).values())
        pod = claim[0]
        driver = sum(
            one.memory_bytes or 0
            for one in uses
            if one.uuid == gpu and one.cgroup.pods == (f"{pod}-uid",)
        )
        assert overhead >= 0
        assert tracked + overhead == max(tracked, driver)
    shuffled = list(uses)
    order.shuffle(shuffled)
    backwards = look(*shuffled, grants=GRANTS[::-1], accounts=accounts, connected=connected)
    again, same = detect(backwards)
    assert [(each.key, each.used_bytes) for each in again] == [
        (each.key, each.used_bytes) for each in findings
    ]
    assert same == overheads


def one(pid: int = 7, *, reason: str = UNHELD, started: int = 1) -> Finding:
    assert reason in (UNHELD, OVER_LIMIT)
    named = grant().pod
    assert named is not None
    return Finding(
        reason=UNHELD if reason == UNHELD else OVER_LIMIT,
        claim="a-claim",
        pod=named,
        container="",
        pid=pid,
        started=started,
        gpus=GPUS[:1],
        used_bytes=1,
        limit_bytes=2,
    )


def test_what_is_seen_once_is_not_told_and_what_lasts_is_told_once() -> None:
    suspicions = PersistentFindings()
    assert suspicions.add([one()], 0) == []
    assert suspicions.add([], 1) == []
    assert suspicions.add([one()], 2) == []
    assert suspicions.add([one()], 3) == [one()]
    assert suspicions.add([one()], 4) == []
    assert suspicions.lasting == (one(),)
    assert suspicions.add([one()], 3 + REPEAT_SECONDS) == [one()]
    assert suspicions.add([], 4 + REPEAT_SECONDS) == []
    assert not suspicions.lasting


def test_a_pid_that_is_used_again_is_another_process() -> None:
    suspicions = PersistentFindings()
    suspicions.add([one(started=1)], 0)
    assert suspicions.add([one(started=2)], 1) == []
    assert suspicions.add([one(started=2)], 2) == [one(started=2)]


def test_too_much_memory_stays_one_finding_whoever_is_suspected_now() -> None:
    suspicions = PersistentFindings()
    suspicions.add([one(7, reason=OVER_LIMIT)], 0)
    assert suspicions.add([one(8, reason=OVER_LIMIT)], 1) == [one(8, reason=OVER_LIMIT)]


def test_an_overhead_is_believed_when_two_looks_agree_and_less_of_it_at_once() -> None:
    settled, part = StableOverheads(), ("a-claim", GPUS[0])
    assert settled.add({part: 9}) == {}
    assert settled.add({part: 5}) == {part: 5}
    assert settled.add({part: 7}) == {part: 5}
    assert settled.add({part: 7}) == {part: 7}
    assert settled.add({part: 1}) == {part: 1}
    assert settled.add({}) == {}
    assert settled.add({part: 3}) == {}
    assert StableOverheads().add({part: 0}) == {part: 0}
