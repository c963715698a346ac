"""The contract of an API server: the fake one keeps it as the real one does.

Every test runs against both. What the fake server does not have (validation of types and of
built-in kinds, CEL, admission policies, garbage collection) is at the end of this module or in
``tests/deploy``, against the real server alone.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.cluster.invariants import overcommitted
from kube.contract import ControlPlane
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Raw,
    Resource,
)
from kubeshare.lab.control_plane.api_server import ApiServer

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


def config_map(name: str, namespace: str, labels: Raw | None = None, **data: str) -> Raw:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"metadata": metadata, "data": data}


def unchanged(obj: Raw) -> Raw:
    """The operation of a JSON patch that makes it conditional."""
    version = obj["metadata"]["resourceVersion"]
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def test_the_server_sets_metadata_and_names_are_unique(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        first = await client.create(CONFIG_MAPS, config_map("a", namespace))
        metadata = first["metadata"]
        assert metadata["uid"]
        assert metadata["resourceVersion"]
        assert metadata["creationTimestamp"].endswith("Z")
        with pytest.raises(AlreadyExistsError):
            await client.create(CONFIG_MAPS, config_map("a", namespace))
        await client.delete(CONFIG_MAPS, "a", namespace)
        second = await client.create(CONFIG_MAPS, config_map("a", namespace))
        assert second["metadata"]["uid"] != metadata["uid"]
        generated = {"metadata": {"generateName": "g-", "namespace": namespace}}
        name = (await client.create(CONFIG_MAPS, generated))["metadata"]["name"]
        assert name.startswith("g-")
        assert len(name) == 7

    control_plane.run(main)


def test_every_verb_says_that_an_object_does_not_exist(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, "none", namespace)
        with pytest.raises(NotFoundError):
            await client.delete(CONFIG_MAPS, "none", namespace)
        with pytest.raises(NotFoundError):
            await client.merge_patch(CONFIG_MAPS, "none", {"data": {}}, namespace)
        operation = {"op": "add", "path": "/data", "value": {}}
        with pytest.raises(NotFoundError):
            await client.json_patch(CONFIG_MAPS, "none", [operation], namespace)

    control_plane.run(main)


def test_writes_with_an_old_version_are_conflicts(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        old = await client.create(CONFIG_MAPS, config_map("a", namespace, k="1"))
        change = {"op": "replace", "path": "/data/k", "value": "2"}
        new = await client.json_patch(CONFIG_MAPS, "a", [unchanged(old), change], namespace)
        assert new["data"] == {"k": "2"}
        assert new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
        with pytest.raises(ConflictError) as stale:
            await client.json_patch(CONFIG_MAPS, "a", [unchanged(old), change], namespace)
        assert stale.value.status == 422
        version = {"resourceVersion": old["metadata"]["resourceVersion"]}
        with pytest.raises(ConflictError):
            await client.merge_patch(CONFIG_MAPS, "a", {"metadata": version}, namespace)
        with pytest.raises(ConflictError):
            await client.delete(
                CONFIG_MAPS, "a", namespace, resource_version=version["resourceVersion"]
            )
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
        assert await client.get(CONFIG_MAPS, "a", namespace) == new
        await client.delete(
            CONFIG_MAPS,
            "a",
            namespace,
            uid=new["metadata"]["uid"],
            resource_version=new["metadata"]["resourceVersion"],
        )
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, "a", namespace)

    control_plane.run(main)


def test_a_write_that_changes_nothing_keeps_the_version(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        old = await client.create(CONFIG_MAPS, config_map("a", namespace, k="1"))
        same = await client.merge_patch(CONFIG_MAPS, "a", {"data": {"k": "1"}}, namespace)
        assert same["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]

    control_plane.run(main)


def test_a_merge_patch_overwrites_fields_and_null_removes_them(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        await client.create(CONFIG_MAPS, config_map("a", namespace, k="1", other="2"))
        patch = {"data": {"k": None, "other": "3", "new": "4"}}
        after = await client.merge_patch(CONFIG_MAPS, "a", patch, namespace)
        assert after["data"] == {"other": "3", "new": "4"}

    control_plane.run(main)


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ([{"op": "remove", "path": "/data/none"}], InvalidError),
        ([{"op": "replace", "path": "/metadata/finalizers/3", "value": "a.test/b"}], InvalidError),
        ([{"op": "add", "path": "/none/of/these", "value": "1"}], InvalidError),
        ([{"op": "test", "path": "/data/k", "value": "other"}], ConflictError),
        ([{"op": "test", "path": "/data/none", "value": "1"}], ConflictError),
        (
            [
                {"op": "add", "path": "/data/new", "value": "1"},
                {"op": "test", "path": "/data/k", "value": "other"},
            ],
            ConflictError,
        ),
    ],
    ids=["remove", "replace item", "parent", "test value", "test path", "all or none"],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(
    control_plane: ControlPlane, operations: list[Raw], error: type[Exception]
) -> None:
    async def main(client: Client, namespace: str) -> None:
        before = await client.create(CONFIG_MAPS, config_map("a", namespace, k="1"))
        with pytest.raises(error) as refused:
            await client.json_patch(CONFIG_MAPS, "a", operations, namespace)
        assert type(refused.value) is error
        assert await client.get(CONFIG_MAPS, "a", namespace) == before

    control_plane.run(main)


def test_a_json_patch_works_on_lists_and_escaped_names(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        made = config_map("a", namespace, {"a.test/b": "1"})
        made["metadata"]["finalizers"] = ["a.test/one"]
        await client.create(CONFIG_MAPS, made)
        after = await client.json_patch(
            CONFIG_MAPS,
            "a",
            [
                {"op": "test", "path": "/metadata/labels/a.test~1b", "value": "1"},
                {"op": "replace", "path": "/metadata/labels/a.test~1b", "value": "2"},
                {"op": "add", "path": "/metadata/finalizers/-", "value": "a.test/two"},
                {"op": "test", "path": "/metadata/finalizers/0", "value": "a.test/one"},
                {"op": "remove", "path": "/metadata/finalizers/0"},
                # RFC 6902 wants an error here; the API server adds the field.
                {"op": "replace", "path": "/metadata/labels/new", "value": "3"},
            ],
            namespace,
        )
        assert after["metadata"]["labels"] == {"a.test/b": "2", "new": "3"}
        assert after["metadata"]["finalizers"] == ["a.test/two"]

    control_plane.run(main)


def test_finalizers_delay_a_deletion(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        made = config_map("a", namespace)
        made["metadata"]["finalizers"] = ["a.test/one"]
        await client.create(CONFIG_MAPS, made)
        await client.delete(CONFIG_MAPS, "a", namespace)
        marked = await client.get(CONFIG_MAPS, "a", namespace)
        assert marked["metadata"]["deletionTimestamp"]
        await client.delete(CONFIG_MAPS, "a", namespace)
        patch = {"metadata": {"finalizers": None}}
        await client.merge_patch(CONFIG_MAPS, "a", patch, namespace)
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, "a", namespace)

    control_plane.run(main)


def test_lists_come_in_pages_and_by_selectors(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        for number in range(7):
            labels = {"tier": "ab"[number % 2]} | ({"odd": "yes"} if number % 2 else {})
            await client.create(CONFIG_MAPS, config_map(f"p{number}", namespace, labels))

        async def names(**selectors: Any) -> list[str]:
            listing = await client.list(CONFIG_MAPS, namespace, **selectors)
            assert listing.resource_version
            found = [item["metadata"]["name"] for item in listing.items]
            return [name for name in found if name.startswith("p")]

        every = [f"p{number}" for number in range(7)]
        before = client.requests["list", "configmaps"]
        assert await names(page=3) == every
        assert client.requests["list", "configmaps"] - before >= 3
        assert await names(labels="tier=a") == every[::2]
        assert await names(labels="tier!=a,tier") == every[1::2]
        assert await names(labels="tier in (a, b),odd") == every[1::2]
        assert await names(labels="tier,!odd") == every[::2]
        assert await names(labels="tier notin (b),tier") == every[::2]
        assert await names(fields="metadata.name=p3") == ["p3"]

    control_plane.run(main)


def test_a_watch_reports_each_change_since_a_version(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        await client.create(CONFIG_MAPS, config_map("before", namespace, {"x": "y"}))
        listing = await client.list(CONFIG_MAPS, namespace, labels="x=y")
        first = await client.create(CONFIG_MAPS, config_map("a", namespace, {"x": "y"}))
        await client.merge_patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, namespace)
        await client.create(CONFIG_MAPS, config_map("unselected", namespace))
        unlabel = {"metadata": {"labels": None}}
        await client.merge_patch(CONFIG_MAPS, "a", unlabel, namespace)
        relabel = {"metadata": {"labels": {"x": "y"}}}
        await client.merge_patch(CONFIG_MAPS, "a", relabel, namespace)
        await client.delete(CONFIG_MAPS, "a", namespace)
        second = await client.create(CONFIG_MAPS, config_map("a", namespace, {"x": "y"}))
        events = []
        versions = []
        stream = client.watch(
            CONFIG_MAPS, namespace, resource_version=listing.resource_version, labels="x=y"
        )
        async with asyncio.timeout(20), aclosing(stream):
            async for event in stream:
                events.append((event.type, event.key.name, event.identity.uid))
                versions.append(event.identity.resource_version)
                if event.identity.uid == second["metadata"]["uid"]:
                    break
        uid = first["metadata"]["uid"]
        told = ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        expected = [(kind, "a", uid) for kind in told]
        assert events == [*expected, ("ADDED", "a", second["metadata"]["uid"])]
        # A watch may go on from each of them.
        assert len(set(versions)) == len(versions)

    control_plane.run(main)


def test_an_applied_field_is_owned_conflicts_and_is_taken_back(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        both = config_map("a", namespace, a="1", b="1")
        await client.apply(CONFIG_MAPS, both, field_manager="one")
        one = config_map("a", namespace, a="1")
        after = await client.apply(CONFIG_MAPS, one, field_manager="one")
        assert after["data"] == {"a": "1"}
        other = config_map("a", namespace, a="2")
        with pytest.raises(ConflictError, match="one"):
            await client.apply(CONFIG_MAPS, other, field_manager="two")
        forced = await client.apply(CONFIG_MAPS, other, field_manager="two", force=True)
        assert forced["data"] == {"a": "2"}

    control_plane.run(main)


def test_each_manager_owns_its_condition_of_a_status(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        name = f"{namespace}-node"
        await client.create(NODES, {"metadata": {"name": name}})

        def status(*kinds: str) -> Raw:
            time = "2026-01-01T00:00:00Z"
            told = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": time}
            conditions = [{"type": kind} | told for kind in kinds]
            return {"metadata": {"name": name}, "status": {"conditions": conditions}}

        for manager, kind in (("one", "Warm"), ("two", "Dry")):
            after = await client.apply(
                NODES, status(kind), field_manager=manager, subresource="status"
            )
        assert {item["type"] for item in after["status"]["conditions"]} == {"Warm", "Dry"}
        after = await client.apply(NODES, status(), field_manager="one", subresource="status")
        assert [item["type"] for item in after["status"]["conditions"]] == ["Dry"]
        await client.delete(NODES, name)

    control_plane.run(main)


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
    crd = yaml.safe_load(Path("deploy/crds/vgpus.yaml").read_text())

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
        await client.post(PODS, "p", "binding", binding, namespace)
        assert (await client.get(PODS, "p", namespace))["spec"]["nodeName"] == "n1"
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
        async with asyncio.timeout(60), Client.connect(apiserver.kubeconfig) as client:
            await client.create(CONFIG_MAPS, config_map("contract-a", "kube-system", k="0"))
            await client.create(VALIDATING_ADMISSION_POLICIES, policy)
            await client.create(VALIDATING_ADMISSION_POLICY_BINDINGS, binding)
            try:
                for number in range(600):  # the server reads policies in the background
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
