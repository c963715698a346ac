"""The contract of an API server for kinds of a CRD, vGPUs and pods: fake and real alike.

What the fake server does not have (validation of types and of built-in kinds, CEL, admission
policies, garbage collection) is at the end of this module or in ``tests/deploy``, against the
real server alone.
"""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deadlines import DEADLINE_S
from kube.contract import ControlPlane, config_map, unchanged
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    PODS,
    SERVICE_ACCOUNTS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Raw,
    Resource,
)
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.simulator.control_tier.stored import overcommitted

WIDGETS = Resource("contract.test", "v1", "widgets", "Widget")

_SPEC = {
    "type": "object",
    "default": {},
    "properties": {
        "size": {"type": "integer", "default": 1},
        "mode": {"type": "string"},
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "integer", "default": 5},
                },
            },
        },
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.size) || self.size <= 10", "message": "at most 10"},
        {"rule": "!has(oldSelf.mode) || self.mode == oldSelf.mode", "message": "mode is fixed"},
    ],
}
_STATUS = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
CRD: Raw = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.contract.test"},
    "spec": {
        "group": "contract.test",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _SPEC, "status": _STATUS},
                    }
                },
            }
        ],
    },
}


def widget_rule(new: Raw, old: Raw | None) -> str | None:
    """The rules of the CRD, for the fake server."""
    if new["spec"].get("size", 0) > 10:
        return "at most 10"
    if old is not None and old["spec"].get("mode") not in (None, new["spec"].get("mode")):
        return "mode is fixed"
    return None


def with_widgets(
    control_plane: ControlPlane, test: Callable[[Client, str], Any]
) -> Callable[[Client, str], Any]:
    async def main(client: Client, namespace: str) -> None:
        await control_plane.install(client, CRD, WIDGETS, widget_rule)
        await test(client, namespace)

    return main


def test_spec_and_status_are_written_apart_and_only_the_spec_has_generations(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        metadata = {"name": "a", "namespace": namespace}
        body = {"metadata": metadata, "spec": {"size": 2}, "status": {"ready": True}}
        made = await client.create(WIDGETS, body)
        assert "status" not in made
        assert made["metadata"]["generation"] == 1
        both = {"spec": {"size": 3}, "status": {"ready": True}}
        after = await client.merge_patch(WIDGETS, "a", both, namespace, subresource="status")
        assert (after["spec"]["size"], after["status"]) == (2, {"ready": True})
        assert after["metadata"]["generation"] == 1
        after = await client.merge_patch(
            WIDGETS, "a", {"spec": {"size": 3}, "status": {"ready": False}}, namespace
        )
        assert (after["spec"]["size"], after["status"]) == (3, {"ready": True})
        assert after["metadata"]["generation"] == 2
        labelled = {"metadata": {"labels": {"x": "y"}}}
        after = await client.merge_patch(WIDGETS, "a", labelled, namespace)
        assert after["metadata"]["generation"] == 2

    control_plane.run(with_widgets(control_plane, main))


def test_unknown_fields_are_pruned_and_missing_ones_defaulted(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        metadata = {"name": "a", "namespace": namespace}
        made = await client.create(WIDGETS, {"metadata": metadata, "other": 1})
        assert made["spec"] == {"size": 1}
        assert "other" not in made
        spec = {
            "size": None,
            "unknown": 1,
            "parts": [{"name": "x", "unknown": 1}, {"weight": 7}],
            "limits": {"any": "name"},
            "free": {"any": {"depth": 1}},
        }
        after = await client.merge_patch(WIDGETS, "a", {"spec": spec}, namespace)
        assert after["spec"] == {
            "size": 1,
            "parts": [{"name": "x", "weight": 5}, {"weight": 7}],
            "limits": {"any": "name"},
            "free": {"any": {"depth": 1}},
        }
        applied = {"metadata": metadata, "status": {"ready": True, "unknown": 1}}
        after = await client.merge_patch(WIDGETS, "a", applied, namespace, subresource="status")
        assert after["status"] == {"ready": True}

    control_plane.run(with_widgets(control_plane, main))


def test_a_write_that_breaks_a_rule_is_invalid_and_says_which(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        metadata = {"name": "a", "namespace": namespace}
        with pytest.raises(InvalidError, match="at most 10") as refused:
            await client.create(WIDGETS, {"metadata": metadata, "spec": {"size": 11}})
        assert refused.value.status == 422
        assert any("at most 10" in cause["message"] for cause in refused.value.causes)
        made = await client.create(WIDGETS, {"metadata": metadata, "spec": {"mode": "slow"}})
        with pytest.raises(InvalidError, match="mode is fixed"):
            await client.merge_patch(WIDGETS, "a", {"spec": {"mode": "fast"}}, namespace)
        # A broken rule is no conflict, not even in a patch with a test that holds.
        grow = {"op": "replace", "path": "/spec/size", "value": 11}
        with pytest.raises(InvalidError, match="at most 10"):
            await client.json_patch(WIDGETS, "a", [unchanged(made), grow], namespace)

    control_plane.run(with_widgets(control_plane, main))


def test_a_vgpu_cannot_be_overcommitted(control_plane: ControlPlane) -> None:
    crd = yaml.safe_load(Path("deploy/chart/kubeshare/manifests/crds/vgpus.yaml").read_text())

    def holder(number: int, request: int, memory: int) -> Raw:
        return {
            "demand": f"uid-{number}",
            "share": "",
            "namespace": "default",
            "name": f"pod-{number}",
            "requestMicros": request,
            "limitMicros": 1_000_000,
            "limitAloneMicros": 1_000_000,
            "memoryBytes": memory,
        }

    async def main(client: Client, namespace: str) -> None:
        await control_plane.install(client, crd, VGPUS, overcommitted)
        body = {"metadata": {"name": namespace}, "spec": {"nodeName": "n", "memoryBytes": 100}}
        made = await client.create(VGPUS, body)
        assert made["spec"]["pool"] == "onDemand"

        async def write(*holders: Raw, phase: str = "Active") -> Raw:
            status = {"status": {"phase": phase, "holders": list(holders)}}
            return await client.merge_patch(VGPUS, namespace, status, subresource="status")

        await write(holder(1, 600_000, 60), holder(2, 400_000, 40))
        with pytest.raises(InvalidError, match="requests would be more than one GPU"):
            await write(holder(1, 600_000, 60), holder(2, 400_001, 40))
        with pytest.raises(InvalidError, match="memory would be more than the GPU has"):
            await write(holder(1, 600_000, 60), holder(2, 400_000, 41))
        with pytest.raises(InvalidError):
            await write(holder(1, 600_000, 60), phase="Deleting")
        # Where the policies are installed, a vGPU in use cannot be deleted.
        await write()
        await client.delete(VGPUS, namespace)

    control_plane.run(main)


def test_a_pod_is_bound_once_and_its_deletion_has_a_grace_period(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        account = {"metadata": {"name": "default", "namespace": namespace}}
        await client.create(SERVICE_ACCOUNTS, account)
        container = {"name": "c", "image": "example.test/none"}
        for name in ("p", "unbound"):
            body = {"metadata": {"name": name, "namespace": namespace}}
            pod = await client.create(PODS, body | {"spec": {"containers": [container]}})
            assert pod["status"]["phase"] == "Pending"
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}} | target
        stale = {"metadata": {"name": "p", "uid": "00000000-0000-0000-0000-000000000000"}}
        with pytest.raises(ConflictError):
            await client.post(PODS, "p", "binding", binding | stale, namespace)
        uid = (await client.get(PODS, "p", namespace))["metadata"]["uid"]
        marked = {"name": "p", "uid": uid, "labels": {"a": "b"}, "annotations": {"c": "d"}}
        await client.post(PODS, "p", "binding", binding | {"metadata": marked}, namespace)
        bound = await client.get(PODS, "p", namespace)
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["labels"] == {"a": "b"}
        assert bound["metadata"]["annotations"] == {"c": "d"}
        with pytest.raises(ConflictError):
            await client.post(PODS, "p", "binding", binding, namespace)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": namespace},
        }
        await client.post(PODS, "p", "eviction", eviction, namespace)
        leaving = await client.get(PODS, "p", namespace)
        assert leaving["metadata"]["deletionTimestamp"]
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        await client.delete(PODS, "p", namespace, grace=0)
        await client.delete(PODS, "unbound", namespace)
        for name in ("p", "unbound"):
            with pytest.raises(NotFoundError):
                await client.get(PODS, name, namespace)

    control_plane.run(main)


@pytest.mark.apiserver
def test_an_admission_policy_refuses_a_write_of_the_real_server(apiserver: ApiServer) -> None:
    """The fake server has no admission policies: a rule (``add_rule``) stands for one."""
    policy = {
        "metadata": {"name": "contract.test"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["configmaps"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "!object.metadata.name.startsWith('contract-') || "
                    "object.data.k == oldObject.data.k",
                    "message": "k is fixed",
                }
            ],
        },
    }
    binding = {
        "metadata": {"name": "contract.test"},
        "spec": {"policyName": "contract.test", "validationActions": ["Deny"]},
    }

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), Client.connect(apiserver.kubeconfig) as client:
            await client.create(CONFIG_MAPS, config_map("contract-a", "kube-system", k="0"))
            await client.create(VALIDATING_ADMISSION_POLICIES, policy)
            await client.create(VALIDATING_ADMISSION_POLICY_BINDINGS, binding)
            try:
                for number in itertools.count():  # the server reads policies in the background
                    data = {"data": {"k": str(number + 1)}}
                    try:
                        await client.merge_patch(CONFIG_MAPS, "contract-a", data, "kube-system")
                    except (ForbiddenError, InvalidError) as error:
                        refused = error
                        break
                    await asyncio.sleep(0.05)
                assert refused.status == 422
                assert "k is fixed" in str(refused)
            finally:
                await client.delete(VALIDATING_ADMISSION_POLICY_BINDINGS, "contract.test")
                await client.delete(VALIDATING_ADMISSION_POLICIES, "contract.test")
                await client.delete(CONFIG_MAPS, "contract-a", "kube-system")

    asyncio.run(main())
