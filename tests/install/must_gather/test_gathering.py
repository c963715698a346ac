"""An archive has what finds a fault, says what it lacks, and is bounded."""

import json
import tarfile
from pathlib import Path

import pytest

from fakes.manifests import sharepod
from install.checks.test_cluster_reader import whole_cluster
from install.must_gather.test_redaction import POD, SECRET
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.cli.must_gather import fill
from kubeshare.install.must_gather import gathering
from kubeshare.install.must_gather.archive import FOLDER, open_archive
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

LIMIT = 8 << 20
LABELS = {"app.kubernetes.io/part-of": "kubeshare"}


def program(server: FakeApiServer, name: str, node: str = "", *, restarts: int = 0) -> None:
    """A pod of KubeShare with a log and metrics; on a node if it is of a DaemonSet."""
    owner = [{"kind": "DaemonSet", "name": "d", "uid": "u", "apiVersion": "apps/v1"}]
    status = {"name": "main", "ready": True, "restartCount": restarts}
    server.seed(
        PODS,
        {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": LABELS | {"app.kubernetes.io/component": "any"},
                "ownerReferences": owner if node else [],
            },
            "spec": {"nodeName": node or "control", "containers": [{"name": "main"}]},
            "status": {"containerStatuses": [status]},
        },
    )
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    server.discovery.texts |= {
        f"{path}/log": f"log of {name}\n",
        f"{path}:8080/proxy/metrics": f"metrics of {name}\n",
    }


@pytest.fixture
def server() -> FakeApiServer:
    """A cluster with KubeShare, a SharePod, a pod with a share, and one without."""
    found = whole_cluster()
    program(found, "scheduler-1")
    program(found, "agent-1", "n1")
    found.seed(SHAREPODS, sharepod("shared", metadata={"namespace": "team"}))
    found.seed(PODS, POD)
    found.seed(PODS, {"metadata": {"name": "other", "namespace": "team"}, "spec": {}})
    about = {"kind": "SharePod", "name": "shared", "namespace": "team"}
    for name, event in {
        "ours": {"regarding": about, "reason": "Bound", "note": "placed"},
        "theirs": {"regarding": {"kind": "Pod"}, "reason": "Unhealthy", "note": SECRET},
    }.items():
        found.seed(EVENTS, {"metadata": {"name": name, "namespace": "team"}} | event)
    return found


def gathered(server: FakeApiServer, path: Path, *nodes: str, limit: int = LIMIT) -> dict[str, str]:
    """The files of an archive by their names."""

    async def main() -> None:
        async with server.client("administrator") as client:
            with open_archive(path, limit, 1) as archive:
                await fill(client, archive, nodes)

    run_virtual(main())
    with tarfile.open(path) as tar:
        files: dict[str, str] = {}
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            files[member.name.removeprefix(f"{FOLDER}/")] = content.read().decode()
    return files


def names(text: str) -> list[str]:
    return [each["metadata"]["name"] for each in json.loads(text)["items"]]


def test_it_has_objects_logs_metrics_events_and_findings(
    server: FakeApiServer, tmp_path: Path
) -> None:
    files = gathered(server, tmp_path / "a.tar.gz")
    assert names(files["objects/sharepods.json"]) == ["shared"]
    assert names(files["objects/gpunodes.json"]) == ["n1"]
    assert names(files["objects/pods.json"]) == ["train"]
    assert names(files["objects/events.json"]) == ["ours"]
    assert len(names(files["objects/daemonsets.json"])) == 2
    assert files["programs/agent-1/log.txt"] == "log of agent-1\n"
    assert files["programs/scheduler-1/metrics.txt"] == "metrics of scheduler-1\n"
    assert "pool:" in files["configuration.yaml"]
    assert json.loads(files["versions/kubernetes.json"])["gitVersion"] == "v1.36.3"
    assert {each["check"] for each in json.loads(files["doctor.json"])["findings"]} > {"programs"}
    assert "Nothing else." in files["left-out.txt"]
    assert "Secrets" in files["left-out.txt"]
    assert SECRET not in "".join(files.values())


def test_it_changes_nothing_and_asks_for_no_secret(server: FakeApiServer, tmp_path: Path) -> None:
    gathered(server, tmp_path / "a.tar.gz")
    assert server.writes == 0
    assert not [each for each in server.requests if "secret" in each.resource]


def test_what_cannot_be_read_is_listed_and_the_rest_is_there(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.inject(Fault.answer(403), verb="list", resource="shareusages")
    del server.discovery.texts[f"/api/v1/namespaces/{NAMESPACE}/pods/agent-1/log"]
    server.inject(Fault.answer(500), verb="get", resource="pods/log", name="agent-1")
    files = gathered(server, tmp_path / "a.tar.gz")
    assert "objects/shareusages.json" not in files
    lines = files["left-out.txt"].splitlines()
    for missing in ("objects/shareusages.json: ", "programs/agent-1/log.txt: "):
        assert [line for line in lines if line.startswith(missing)]
    assert "programs/scheduler-1/log.txt" in files


def test_programs_whose_ports_the_api_server_cannot_reach_are_not_waited_for_one_by_one(
    server: FakeApiServer, tmp_path: Path
) -> None:
    for number in range(5):
        program(server, f"silent-{number}", "n1")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/silent-{number}:8080/proxy/metrics"
        del server.discovery.texts[path]
    server.inject(Fault.answer(503), verb="get", resource="pods/proxy", times=10)
    files = gathered(server, tmp_path / "a.tar.gz")
    asked = [each for each in server.requests if each.path.name.startswith("silent-")]
    assert sum(each.resource == "pods/proxy" for each in asked) == gathering.MOST_SILENT
    assert "programs/silent-4/log.txt" in files
    assert "programs/silent-4/metrics.txt" not in files
    [line] = [
        each
        for each in files["left-out.txt"].splitlines()
        if each.startswith("programs/silent-4/metrics.txt: ")
    ]
    assert line.endswith("on port 8080: a NetworkPolicy has to admit the API server")


def test_a_restarted_program_has_the_log_from_before(server: FakeApiServer, tmp_path: Path) -> None:
    program(server, "agent-1", "n1", restarts=3)
    assert "programs/agent-1/previous.txt" in gathered(server, tmp_path / "a.tar.gz")


def test_content_is_bounded_and_what_has_no_room_is_listed(
    server: FakeApiServer, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/agent-1/log"
    server.discovery.texts[path] = "x" * 900_000
    files = gathered(server, tmp_path / "a.tar.gz", limit=500_000)
    assert sum(map(len, files.values())) < 510_000
    assert "programs/agent-1/log.txt: 900000 bytes are more" in files["left-out.txt"]
    assert "programs/agent-1/metrics.txt" in files


def test_of_many_objects_the_first_are_there(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MAX_OBJECTS", 2)
    for number in range(3):
        server.seed(SHAREPODS, sharepod(f"more-{number}", metadata={"namespace": "team"}))
    files = gathered(server, tmp_path / "a.tar.gz")
    assert len(names(files["objects/sharepods.json"])) == 2
    assert "objects/sharepods.json: 2 more than 2 objects" in files["left-out.txt"]


@pytest.mark.parametrize(
    ("nodes", "expected"), [((), {"agent-1", "agent-3"}), (("n2",), {"agent-2"})]
)
def test_programs_of_some_nodes_are_read_those_that_fail_first(
    server: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nodes: tuple[str, ...],
    expected: set[str],
) -> None:
    monkeypatch.setattr(gathering, "MAX_NODES", 2)
    program(server, "agent-2", "n2")
    program(server, "agent-3", "n3", restarts=1)
    files = gathered(server, tmp_path / "a.tar.gz", *nodes)
    logs = {name.split("/")[1] for name in files if name.startswith("programs/agent")}
    assert logs == expected
    assert "was not chosen" in files["left-out.txt"]


def test_only_its_owner_reads_the_archive(server: FakeApiServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    gathered(server, path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_where_the_api_server_does_not_answer(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.down = True
    with pytest.raises(UnreachableError):
        gathered(server, tmp_path / "a.tar.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_others_may_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "gathered.tar.gz"
    others = tmp_path / "gathered.tar.gz.unfinished"
    others.touch(mode=0o666)
    others.chmod(0o666)
    with open_archive(path, 1000, 1):
        pass
    assert path.stat().st_mode & 0o777 == 0o600
