"""The manifest of a placeholder: it takes a GPU, and nothing that it does not need."""

from typing import Any

import msgspec
import pytest

from fakes import objects
from kubeshare.api.types.reasons import Reason
from kubeshare.device_manager.placeholder.pods import is_misplaced, manifest
from kubeshare.kube.meta import Condition


def test_the_pod_of_an_idle_vgpu() -> None:
    needs = {"nvidia.com/gpu": "1", "cpu": "10m", "memory": "16Mi"}
    assert manifest(objects.vgpu("a", pool="reserved"), "i:1", "ns-uid") == {
        "metadata": {
            "name": "kubeshare-vgpu-a",
            "namespace": "kubeshare-system",
            "labels": {
                "app.kubernetes.io/part-of": "kubeshare",
                "kubeshare.nthu/role": "placeholder",
                "kubeshare.nthu/vgpu": "a",
                "kubeshare.nthu/in-use": "false",
            },
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "name": "kubeshare-system",
                    "uid": "ns-uid",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "priorityClassName": "kubeshare-placeholder",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "placeholder",
                    "image": "i:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
                    "resources": {"requests": needs, "limits": needs},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ]
                            }
                        ]
                    }
                }
            },
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        },
    }


@pytest.mark.parametrize(
    ("pool", "held", "in_use"),
    [("onDemand", False, True), ("reserved", True, True), ("reserved", False, False)],
)
def test_a_vgpu_that_has_or_is_about_to_get_a_holder_is_in_use(
    pool: str, held: bool, in_use: bool
) -> None:
    holders = (objects.holder("d"),) if held else ()
    metadata: Any = manifest(objects.vgpu("a", pool=pool, holders=holders), "i", "u")["metadata"]
    assert metadata["labels"]["kubeshare.nthu/in-use"] == str(in_use).lower()
    [safe_to_evict] = metadata["annotations"].values()
    assert safe_to_evict == str(not in_use).lower()


@pytest.mark.parametrize(
    ("uuid", "reason", "misplaced"),
    [
        ("", Reason.OTHER_MODEL, True),
        ("GPU-1", Reason.OTHER_MODEL, False),
        ("", Reason.NOT_SHAREABLE, False),
        ("", "", False),
    ],
)
def test_misplaced_is_one_without_a_gpu_whose_placeholder_got_another_model(
    uuid: str, reason: str, misplaced: bool
) -> None:
    vgpu = objects.vgpu("a", uuid=uuid)
    if reason:
        shareable = Condition(type="Shareable", status="False", reason=reason)
        status = msgspec.structs.replace(vgpu.status, conditions=(shareable,))
        vgpu = msgspec.structs.replace(vgpu, status=status)
    assert is_misplaced(vgpu) == misplaced
