"""Who owns the GPUs of a node, by the facts about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from device_manager.owned.facts import facts
from kubeshare.api.types.reasons import Reason
from kubeshare.device_manager.owned.takeover import Facts, Ownership, decide, taking_over

CONFLICTS = {
    "offered": 2,
    "by_claims": 2,
    "parts": ("nvidia.com/gpu.shared",),
    "users": ("default/whole",),
    "used": ("GPU-1",),
    "supported": False,
}


def test_a_node_that_is_not_asked_for_is_shared() -> None:
    decided = decide(facts(offered=2))
    assert (decided.mode, decided.accepts, decided.reason) == (
        "shared",
        False,
        Reason.NOT_REQUESTED,
    )


def test_a_node_that_nothing_else_uses_becomes_owned() -> None:
    decided = decide(facts(requested=True))
    assert (decided.mode, decided.accepts, decided.reason) == ("owned", True, Reason.OWNED)


@pytest.mark.parametrize(
    ("fact", "reason", "words"),
    [
        ("offered", "GPUsOffered", ["nvidia.com/gpu", "nvidia.com/gpu.deploy.device-plugin=false"]),
        ("by_claims", "GPUsOffered", ["DRA driver", "nvidia.com/dra-kubelet-plugin=false"]),
        ("parts", "GPUsOffered", ["nvidia.com/gpu.shared", "`kubectl cordon n1`", "that plugin"]),
        ("users", "GPUsInUse", ["default/whole"]),
        ("used", "GPUsInUse", ["GPU-1"]),
        ("supported", "AgentOutdated", ["kubeshare-node-agent"]),
    ],
)
def test_a_node_whose_gpus_something_else_hands_out_is_not_taken_over(
    fact: str, reason: str, words: list[str]
) -> None:
    decided = decide(facts(requested=True, **{fact: CONFLICTS[fact]}))
    assert (decided.mode, decided.accepts, decided.reason) == ("shared", False, reason)
    for word in words:
        assert word in decided.message


@pytest.mark.parametrize("fact", ["offered", "by_claims"])
def test_the_message_has_the_two_commands(fact: str) -> None:
    message = decide(facts(requested=True, **{fact: 1})).message
    assert "`kubectl cordon n1`" in message
    assert "`kubectl label node n1 nvidia.com/" in message


@pytest.mark.parametrize("fact", CONFLICTS)
def test_an_owned_node_that_something_else_uses_stays_owned_and_accepts_nothing(fact: str) -> None:
    decided = decide(facts(requested=True, owned=True, static=("x",), **{fact: CONFLICTS[fact]}))
    assert (decided.mode, decided.accepts) == ("owned", False)


def test_pods_with_claims_end_before_their_driver_is_stopped() -> None:
    decided = decide(facts(requested=True, by_claims=2, claimants=("kubeshare-system/x",)))
    assert (decided.mode, decided.reason) == ("shared", Reason.GPUS_IN_USE)
    assert "before you stop a DRA driver" in decided.message
    owned = decide(facts(requested=True, owned=True, static=("v",), claimants=("default/nic",)))
    assert owned.accepts


def test_a_placeholder_whose_gpu_is_not_known_delays_the_takeover_only() -> None:
    decided = decide(facts(requested=True, unresolved=("x",)))
    assert (decided.mode, decided.reason) == ("shared", Reason.TAKING_OVER)
    assert "x" in decided.message
    assert decide(facts(requested=True, owned=True, unresolved=("x",))).accepts


def test_a_node_that_is_no_longer_asked_for_is_owned_until_its_last_vgpu_is_gone() -> None:
    held = decide(facts(owned=True, static=("x", "y"), held=("y",)))
    assert (held.mode, held.accepts, held.reason) == ("owned", False, Reason.RELEASING)
    assert "y" in held.message
    assert decide(facts(owned=True)).mode == "shared"


def test_while_a_node_settles_it_keeps_its_mode() -> None:
    assert taking_over(facts(requested=True), 60).mode == "shared"
    assert taking_over(facts(requested=True, owned=True), 60).mode == "owned"
    assert not taking_over(facts(requested=True), 60).accepts


@given(
    st.builds(
        Facts,
        node=st.just("n1"),
        requested=st.booleans(),
        owned=st.booleans(),
        supported=st.booleans(),
        offered=st.integers(0, 2),
        by_claims=st.integers(0, 2),
        parts=st.sampled_from([(), ("f",)]),
        users=st.sampled_from([(), ("a",)]),
        used=st.sampled_from([(), ("e",)]),
        claimants=st.sampled_from([(), ("d",)]),
        unresolved=st.sampled_from([(), ("b",)]),
        static=st.sampled_from([(), ("c",)]),
        held=st.just(()),
    )
)
def test_holders_are_accepted_only_where_nothing_else_hands_out_gpus(known: Facts) -> None:
    decided = decide(known)
    if decided.accepts:
        assert known.requested
        assert known.supported
        assert (known.offered, known.by_claims, known.parts) == (0, 0, ())
        assert (known.users, known.used) == ((), ())
        assert decided.mode == "owned"
    if known.static:
        assert decided.mode == "owned"
    assert decided.message


# What is known of the node; its mode, what follows, the reason, the message.
def test_a_summary_counts_pods_and_vgpus_and_names_none() -> None:
    known = facts(requested=True, static=("v", "w"), held=("v",), offered=2, users=("ns/a", "ns/b"))
    decided = decide(known)
    assert decided.message.endswith("says otherwise: v; GPUs of this node have: ns/a, ns/b")
    assert decided.summary.endswith("says otherwise: 1 vGPU; GPUs of this node have: 2 pods")


@given(
    st.fixed_dictionaries(
        {name: st.booleans() for name in ("requested", "cordoned", "owned", "migrating")}
        | {name: st.integers(0, 1) for name in ("offered", "by_claims")}
        | {
            name: st.sampled_from([(), ("secret/a",), ("secret/a", "secret/b")])
            for name in ("users", "legacy", "claimants", "claims", "unresolved", "static", "held")
        }
    )
)
def test_no_summary_names_a_pod_or_a_vgpu(known: dict[str, object]) -> None:
    decided = decide(facts(**known))
    assert decided.summary
    assert "secret" not in decided.summary


@pytest.mark.parametrize("conflict", ["offered", "parts", "users", "used", "claimants"])
def test_vgpus_become_static_only_where_nothing_but_their_driver_has_gpus(conflict: str) -> None:
    known = {"requested": True, "cordoned": True, "by_claims": 1, "claims": ("p",)}
    assert decide(facts(**known)).converts
    amount = 1 if conflict == "offered" else ("x",)
    assert not decide(facts(**known, **{conflict: amount})).converts


@pytest.mark.parametrize(
    ("more", "reason", "words"),
    [
        ({"users": ("ns/a",)}, "GPUsInUse", "without KubeShare: ns/a. Delete them"),
        ({"unresolved": ("v",)}, "TakingOver", "has not reported yet which GPU"),
        ({"supported": False}, "AgentOutdated", "update the DaemonSet"),
        ({"parts": ("f.com/gpu",)}, "GPUsOffered", "offers parts of its GPUs as f.com/gpu"),
    ],
)
def test_a_cordoned_node_with_claims_is_told_what_else_is_in_the_way(
    more: dict[str, object], reason: str, words: str
) -> None:
    known = {"requested": True, "by_claims": 1, "claims": ("p",)} | more
    before = decide(facts(**known))
    assert "run `kubectl cordon n1`; then the pods" in before.message
    decided = decide(facts(**known, cordoned=True))
    assert (decided.mode, decided.reason) == ("shared", reason)
    assert words in decided.message


def test_while_a_node_settles_it_says_how_long() -> None:
    message = (
        "node n1 offers no GPUs now: KubeShare takes them when that has lasted 60 s, since a "
        "device plugin may only be restarting"
    )
    shared = Ownership(mode="shared", reason=Reason.TAKING_OVER, message=message, summary=message)
    assert taking_over(facts(), 60) == shared
    owned = taking_over(facts(static=("v",), migrating=True), 60)
    assert owned == replace(shared, mode="owned", reason=Reason.MIGRATING)
