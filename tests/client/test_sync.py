"""The client without asyncio does what the other one does."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.client import (
    GPU,
    Cluster,
    ConfigError,
    NotFoundError,
    SharePod,
    SyncCluster,
    UnreachableError,
    UnschedulableError,
    WaitTimeoutError,
)
from kubeshare.simulator.control import FakeApiServer

A = SharePod(name="a", spec={"containers": [{"name": "main"}]}, gpu=GPU(request=0.5))


def set_conditions(server: FakeApiServer, **conditions: str) -> None:
    def change(obj: dict[str, Any]) -> None:
        obj["status"] = {
            "conditions": [
                {"type": kind, "status": "True" if reason == "True" else "False", "reason": reason}
                for kind, reason in conditions.items()
            ]
        }

    server.change(SHAREPODS, "a", "default", change)


def test_each_call_returns_when_it_is_done() -> None:
    server = FakeApiServer()
    with SyncCluster(Cluster(server.client())) as cluster:
        assert cluster.namespace == "default"
        created = cluster.create(A)
        assert cluster.get("a") == created
        assert cluster.list() == cluster.list(all_namespaces=True) == (created,)
        with pytest.raises(WaitTimeoutError, match=r"is not Ready after 0.05 s$"):
            cluster.wait("a", timeout=0.05)
        set_conditions(server, Scheduled="NoRoom")
        with pytest.raises(UnschedulableError, match="NoRoom"):
            cluster.wait("a", no_room="raise")
        set_conditions(server, Scheduled="True", Ready="True")
        assert cluster.wait("a").ready
        finding = cluster.explain("a")
        assert (finding.name, finding.decision.outcome) == ("default/a", "pending")
        account = {"metadata": {"name": "u", "namespace": "default"}, "status": {}}
        server.seed(SHARE_USAGES, account)
        assert len(cluster.usage(by=["pod"]).notes) <= 1
        cluster.delete("a")
        with pytest.raises(NotFoundError):
            cluster.get("a")


def test_a_watch_is_left_at_any_time() -> None:
    server = FakeApiServer()
    with SyncCluster(Cluster(server.client())) as cluster:
        cluster.create(A)
        with cluster.watch() as changes:
            assert next(changes).type == "ADDED"
            set_conditions(server, Scheduled="True")
            change = next(changes)
            assert (change.type, change.sharepod.conditions[0].status) == ("MODIFIED", "True")
        assert cluster.get("a").name == "a"


def parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


def test_both_forms_have_the_same_methods_and_parameters() -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        return {
            name: [f"{each.name}={each.default}" for each in parameters(method)]
            for name, method in inspect.getmembers(kind, inspect.isroutine)
            if not name.startswith("_")
        }

    assert signatures(SyncCluster) == signatures(Cluster)


def test_without_a_configuration_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        SyncCluster.connect()


def test_a_cluster_that_is_away_is_an_error(tmp_path: Path) -> None:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    with SyncCluster.connect(tmp_path / "config") as cluster:
        assert cluster.namespace == "mine"
        with pytest.raises(UnreachableError, match="is it running"):
            cluster.list()
