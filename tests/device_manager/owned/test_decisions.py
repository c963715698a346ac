"""What each decision about the GPUs of a node says."""

import pytest
from msgspec.structs import replace

from device_manager.owned.facts import facts
from kubeshare.api.types.reasons import Reason
from kubeshare.device_manager.owned.takeover import Ownership, decide

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
