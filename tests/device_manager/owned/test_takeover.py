"""Who owns the GPUs of a node, by the facts about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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


def facts(**more: object) -> Facts:
    return Facts(**({"node": "n1"} | more))  # type: ignore[arg-type]


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
DECISIONS: list[tuple[dict[str, object], str, str, str, str]] = [
    (
        {"offered": 2},
        *("shared", "", "NotRequested"),
        (
            "the GPUs of node n1 are shared with Kubernetes: neither its label "
            "kubeshare.nthu/gpus nor the configuration asks for more"
        ),
    ),
    (
        {"requested": True},
        *("owned", "accepts", "Owned"),
        "KubeShare owns the GPUs of node n1: each has a static vGPU",
    ),
    (
        {"requested": True, "owned": True, "static": ("v",)},
        *("owned", "accepts", "Owned"),
        "KubeShare owns the GPUs of node n1: each has a static vGPU",
    ),
    (
        {"requested": True, "supported": False},
        *("shared", "", "AgentOutdated"),
        (
            "the node agent of n1 is of an earlier release, which shares GPUs only with a "
            "placeholder: update the DaemonSet kubeshare-node-agent"
        ),
    ),
    (
        {"requested": True, "offered": 2},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers nvidia.com/gpu by its device plugin (2), so other pods may get "
            "them: run `kubectl cordon n1` and `kubectl label node n1 "
            "nvidia.com/gpu.deploy.device-plugin=false --overwrite`, and uncordon the node "
            "when it is owned"
        ),
    ),
    (
        {"requested": True, "by_claims": 2},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers its GPUs by a DRA driver (2), so other pods may get them: run "
            "`kubectl cordon n1` and `kubectl label node n1 "
            "nvidia.com/dra-kubelet-plugin=false --overwrite`, and uncordon the node when it "
            "is owned"
        ),
    ),
    (
        {"requested": True, "parts": ("f.com/gpu", "e.com/gpu")},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers parts of its GPUs as e.com/gpu, f.com/gpu by another device "
            "plugin, so other pods may get them: run `kubectl cordon n1`, stop that plugin on"
            " the node, and uncordon the node when it is owned"
        ),
    ),
    (
        {"requested": True, "users": ("ns/b", "ns/a")},
        *("shared", "", "GPUsInUse"),
        (
            "pods use GPUs of node n1 without KubeShare: ns/a, ns/b. Delete them, or wait "
            "until they have ended"
        ),
    ),
    (
        {
            "requested": True,
            "used": ("GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"),
        },
        *("shared", "", "GPUsInUse"),
        (
            "pods use GPUs of node n1 without KubeShare: GPU-1, GPU-2, GPU-3, GPU-4, GPU-5 "
            "and 2 more. Delete them, or wait until they have ended"
        ),
    ),
    (
        {"requested": True, "used": ("GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5")},
        *("shared", "", "GPUsInUse"),
        (
            "pods use GPUs of node n1 without KubeShare: GPU-1, GPU-2, GPU-3, GPU-4, GPU-5. "
            "Delete them, or wait until they have ended"
        ),
    ),
    (
        {"requested": True, "legacy": ("ns/a",)},
        *("shared", "", "GPUsInUse"),
        (
            "pods have parts of the GPUs of node n1 from another device plugin: ns/a. Run "
            "`kubectl cordon n1`, and record what they use: `kubeshare migrate --help`; or "
            "delete them"
        ),
    ),
    (
        {"requested": True, "unresolved": ("v",)},
        *("shared", "", "TakingOver"),
        "the node agent of n1 has not reported yet which GPU these vGPUs have: v",
    ),
    (
        {"requested": True, "claimants": ("ns/a",)},
        *("shared", "", "GPUsInUse"),
        (
            "pods of node n1 use devices by ResourceClaims, which may be its GPUs: ns/a. "
            "Delete them, or wait until they have ended, before you stop a DRA driver"
        ),
    ),
    (
        {"requested": True, "claims": ("p",)},
        *("shared", "", "GPUsInUse"),
        (
            "placeholders of node n1 have GPUs by claims, which only their DRA driver can "
            "release: p. Start it again, and cordon the node"
        ),
    ),
    (
        {"requested": True, "by_claims": 1, "claims": ("p",)},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers its GPUs by a DRA driver (1): run `kubectl cordon n1`; then the "
            "pods that share its GPUs keep them without claims. Let the driver run until the "
            "claims are released"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "by_claims": 1, "claims": ("p",)},
        *("owned", "converts", "TakingOver"),
        (
            "node n1 is taken over under the pods that share its GPUs: the claims of these "
            "placeholders are released: p. Let the DRA driver run, and keep the node cordoned"
        ),
    ),
    (
        {
            "requested": True,
            "cordoned": True,
            "by_claims": 1,
            "claims": ("p",),
            "claimants": ("ns/a",),
        },
        *("shared", "", "GPUsInUse"),
        (
            "pods of node n1 use devices by ResourceClaims, which may be its GPUs: ns/a. "
            "Delete them, or wait until they have ended, before you stop a DRA driver"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "by_claims": 1, "owned": True, "unresolved": ("v",)},
        *("owned", "converts", "TakingOver"),
        (
            "no claim has a GPU of node n1 any more: run `kubectl label node n1 "
            "nvidia.com/dra-kubelet-plugin=false --overwrite` to stop its DRA driver, and "
            "uncordon the node when it is owned"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "by_claims": 1},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers its GPUs by a DRA driver (1), so other pods may get them: run "
            "`kubectl cordon n1` and `kubectl label node n1 "
            "nvidia.com/dra-kubelet-plugin=false --overwrite`, and uncordon the node when it "
            "is owned"
        ),
    ),
    (
        {
            "requested": True,
            "cordoned": True,
            "legacy": ("ns/a",),
            "parts": ("aliyun.com/gpu-mem",),
        },
        *("owned", "migrates", "Migrating"),
        (
            "node n1 is taken over under pods of another device plugin: record what these "
            "pods use (`kubeshare migrate --help`): ns/a, or delete them. Keep the node "
            "cordoned until it is owned"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "parts": ("aliyun.com/gpu-mem",)},
        *("owned", "migrates", "Migrating"),
        (
            "node n1 is taken over under pods of another device plugin: stop the device "
            "plugin that offers aliyun.com/gpu-mem on the node. Keep the node cordoned until "
            "it is owned"
        ),
    ),
    (
        {"requested": True, "parts": ("aliyun.com/gpu-mem",)},
        *("shared", "", "GPUsOffered"),
        (
            "node n1 offers parts of its GPUs as aliyun.com/gpu-mem by another device plugin,"
            " so other pods may get them: run `kubectl cordon n1`, stop that plugin on the "
            "node, and uncordon the node when it is owned"
        ),
    ),
    (
        {"requested": True, "migrating": True, "owned": True, "parts": ("aliyun.com/gpu-mem",)},
        *("owned", "", "Migrating"),
        (
            "node n1 is taken over under pods of another device plugin: stop the device "
            "plugin that offers aliyun.com/gpu-mem on the node. Run `kubectl cordon n1`, and "
            "keep the node cordoned until it is owned"
        ),
    ),
    (
        {
            "requested": True,
            "migrating": True,
            "cordoned": True,
            "owned": True,
            "legacy": ("ns/a",),
            "offered": 1,
        },
        *("owned", "", "Migrating"),
        (
            "node n1 offers nvidia.com/gpu by its device plugin (1), so other pods may get "
            "them: run `kubectl cordon n1` and `kubectl label node n1 "
            "nvidia.com/gpu.deploy.device-plugin=false --overwrite`, and uncordon the node "
            "when it is owned"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "legacy": ("ns/a",), "claimants": ("ns/c",)},
        *("shared", "", "GPUsInUse"),
        (
            "pods of node n1 use devices by ResourceClaims, which may be its GPUs: ns/c. "
            "Delete them, or wait until they have ended, before you stop a DRA driver"
        ),
    ),
    (
        {"requested": True, "cordoned": True, "legacy": ("ns/a",), "unresolved": ("v",)},
        *("shared", "", "GPUsInUse"),
        (
            "pods have parts of the GPUs of node n1 from another device plugin: ns/a. Run "
            "`kubectl cordon n1`, and record what they use: `kubeshare migrate --help`; or "
            "delete them"
        ),
    ),
    (
        {"requested": True, "migrating": True, "cordoned": True},
        *("owned", "accepts", "Owned"),
        "KubeShare owns the GPUs of node n1: each has a static vGPU",
    ),
    (
        {"static": ("v", "w"), "held": ("w",)},
        *("owned", "", "Releasing"),
        (
            "node n1 is no longer asked for. Its GPUs are given back when the pods on these "
            "vGPUs have ended: w. To give them back now, run `kubectl cordon n1` and start "
            "its device plugin or DRA driver: the GPUs in use then get placeholders. Start "
            "neither while the node is not cordoned"
        ),
    ),
    (
        {"owned": True, "static": ("v",)},
        *("owned", "", "Releasing"),
        (
            "node n1 is no longer asked for. Its GPUs are given back when the pods on these "
            "vGPUs have ended: v. To give them back now, run `kubectl cordon n1` and start "
            "its device plugin or DRA driver: the GPUs in use then get placeholders. Start "
            "neither while the node is not cordoned"
        ),
    ),
    (
        {"static": ("v",), "offered": 1},
        *("owned", "", "GPUsOffered"),
        (
            "node n1 is no longer asked for, and offers GPUs that these vGPUs have: v. Run "
            "`kubectl cordon n1`, so that they get placeholders, and uncordon it when its "
            "mode is shared"
        ),
    ),
    (
        {"static": ("v",), "cordoned": True, "offered": 1},
        *("owned", "returns", "Releasing"),
        (
            "node n1 is given back: these vGPUs get placeholders: v. Keep the node cordoned "
            "until its mode is shared"
        ),
    ),
    (
        {"static": ("v",), "cordoned": True, "by_claims": 1},
        *("owned", "returns", "Releasing"),
        (
            "node n1 is given back: these vGPUs get placeholders: v. Keep the node cordoned "
            "until its mode is shared"
        ),
    ),
    (
        {"static": ("v",), "migrating": True},
        *("owned", "", "Migrating"),
        (
            "node n1 is no longer asked for. Its GPUs are given back when the pods on these "
            "vGPUs have ended: v. To give them back now, run `kubectl cordon n1` and start "
            "its device plugin or DRA driver: the GPUs in use then get placeholders. Start "
            "neither while the node is not cordoned"
        ),
    ),
    (
        {"static": ("v",), "users": ("ns/a",)},
        *("owned", "", "GPUsInUse"),
        (
            "pods use GPUs of node n1 without KubeShare: ns/a. Delete them, or wait until "
            "they have ended"
        ),
    ),
    (
        {"static": ("v",), "legacy": ("ns/a",)},
        *("owned", "", "Releasing"),
        (
            "node n1 is no longer asked for. Its GPUs are given back when the pods on these "
            "vGPUs have ended: v. To give them back now, run `kubectl cordon n1` and start "
            "its device plugin or DRA driver: the GPUs in use then get placeholders. Start "
            "neither while the node is not cordoned"
        ),
    ),
]


@pytest.mark.parametrize(("known", "mode", "follows", "reason", "message"), DECISIONS)
def test_each_decision_says_why_and_what_to_do(
    known: dict[str, object], mode: str, follows: str, reason: str, message: str
) -> None:
    expected = Ownership(mode=mode, reason=Reason(reason), message=message)
    if follows:
        expected = replace(expected, **{follows: True})
    assert replace(decide(facts(**known)), summary="") == expected


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
