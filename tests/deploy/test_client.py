"""The typed client and `kubeshare get` on a real API server, by who may edit one namespace."""

import json
from pathlib import Path

import pytest

from kubeshare.cli.main import main
from kubeshare.client import (
    GPU,
    AlreadyExistsError,
    DeletedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SharePod,
    SyncCluster,
    UnschedulableError,
    WaitTimeoutError,
)
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver

SPEC = {"containers": [{"name": "main", "image": "train:1"}]}


def a_sharepod(name: str) -> SharePod:
    return SharePod(name=name, spec=SPEC, gpu=GPU(request=0.3, memory="4Gi"), labels={"app": name})


def set_status(cluster: ApiServer, namespace: str, name: str, **conditions: str) -> None:
    """Writes conditions: ``True``, or a reason why not."""
    written = [
        {
            "type": kind,
            "status": "True" if reason == "True" else "False",
            "reason": "Bound" if reason == "True" else reason,
            "message": "by the test",
            "lastTransitionTime": "2026-11-28T00:00:00Z",
        }
        for kind, reason in conditions.items()
    ]
    patch = json.dumps({"status": {"conditions": written}})
    patching = ("patch", "shp", name, "-n", namespace, "--subresource=status", "--type=merge")
    cluster.kubectl(*patching, "-p", patch)


def test_each_call_works_with_the_rights_of_an_editor(
    cluster: ApiServer, namespace: str, editor: Path
) -> None:
    with SyncCluster.connect(editor, namespace=namespace) as mine:
        created = mine.create(a_sharepod("a"))
        assert (created.namespace, created.labels) == (namespace, {"app": "a"})
        assert mine.get("a").uid == created.uid
        with pytest.raises(AlreadyExistsError):
            mine.create(a_sharepod("a"))
        with pytest.raises(InvalidError, match=r"metadata\.name"):
            mine.create(a_sharepod("NOT_A_NAME"))
        with pytest.raises(WaitTimeoutError, match=r"is not Ready after 0\.5 s"):
            mine.wait("a", timeout=0.5)
        with mine.watch(labels="app=a") as changes:
            assert next(changes).type == "ADDED"
            set_status(cluster, namespace, "a", Scheduled="NoRoom")
            change = next(changes)
            assert (change.type, change.sharepod.blocker is not None) == ("MODIFIED", True)
        with pytest.raises(UnschedulableError, match="NoRoom: by the test"):
            mine.wait("a", no_room="raise")
        set_status(cluster, namespace, "a", Scheduled="True", Ready="True")
        assert mine.wait("a", timeout=60).ready
        assert [each.name for each in mine.list(labels="app in (a, b)")] == ["a"]
        with pytest.raises(ForbiddenError):
            mine.list(all_namespaces=True)
        mine.delete("a")
        with pytest.raises((DeletedError, NotFoundError)):
            mine.wait("a", until="Succeeded", timeout=60)


def test_get_lists_what_an_editor_may_read(
    namespace: str, editor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncCluster.connect(editor, namespace=namespace) as mine:
        mine.create(a_sharepod("a"))
    options = ["-n", namespace, "--kubeconfig", str(editor)]
    assert main(["get", "-o", "json", *options]) == 0
    written = capsys.readouterr()
    assert [each["name"] for each in json.loads(written.out)["items"]] == ["a"]
    assert "without vGPUs, which you may not read" in written.err
    assert main(["get", "vgpus", *options]) == 3
    assert "forbidden" in capsys.readouterr().err
