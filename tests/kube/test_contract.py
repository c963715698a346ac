"""The contract of an API server: the fake one keeps it as the real one does.

Every test runs against both; kinds of a CRD are in ``test_contract_of_kinds.py``.
"""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from deadlines import DEADLINE_S
from kube.contract import ControlPlane, config_map, unchanged
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    NODES,
    Raw,
)


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
        async with asyncio.timeout(DEADLINE_S), aclosing(stream):
            async for event in stream:
                events.append((event.type, event.key.name, event.identity.uid))
                versions.append(event.identity.resource_version)
                if event.identity.uid == second["metadata"]["uid"]:
                    break
        uid = first["metadata"]["uid"]
        kinds = ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        expected = [(kind, "a", uid) for kind in kinds]
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


def test_an_apply_may_be_conditional_and_a_condition_may_change_hands(
    control_plane: ControlPlane,
) -> None:
    async def main(client: Client, namespace: str) -> None:
        name = f"{namespace}-node"
        made = await client.create(NODES, {"metadata": {"name": name}})

        async def apply(manager: str, version: str = "", **known: str) -> Raw:
            time = "2026-01-01T00:00:00Z"
            condition = {"type": "Shared", "message": "", "lastTransitionTime": time} | known
            conditions = [condition] if known else []
            metadata = {"name": name} | ({"resourceVersion": version} if version else {})
            body = {"metadata": metadata, "status": {"conditions": conditions}}
            return await client.apply(
                NODES, body, field_manager=manager, force=True, subresource="status"
            )

        def shared(node: Raw) -> list[str]:
            conditions = (node.get("status") or {}).get("conditions") or ()
            return [each["status"] for each in conditions if each["type"] == "Shared"]

        first = await apply("two", made["metadata"]["resourceVersion"], status="True", reason="T")
        with pytest.raises(ConflictError):
            await apply("two", made["metadata"]["resourceVersion"], status="True", reason="U")
        assert shared(first) == ["True"]
        assert shared(await apply("two")) == [], "nobody else has it"
        await apply("two", status="True", reason="T")
        await apply("one", status="False", reason="F")
        assert shared(await apply("two")) == ["False"], "the other one has all of it"
        await apply("one", status="True", reason="T")
        await apply("two", status="True", reason="T")
        assert shared(await apply("two")) == ["True"], "both had it"

    control_plane.run(main)


def test_each_manager_owns_its_condition_of_a_status(control_plane: ControlPlane) -> None:
    async def main(client: Client, namespace: str) -> None:
        name = f"{namespace}-node"
        await client.create(NODES, {"metadata": {"name": name}})

        def status(*kinds: str) -> Raw:
            time = "2026-01-01T00:00:00Z"
            status = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": time}
            conditions = [{"type": kind} | status for kind in kinds]
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
