"""The account of a grant is written by the agent of its node alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.rights import every_right
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

AGENT = "system:serviceaccount:kubeshare-system:kubeshare-node-agent"


@pytest.fixture(autouse=True)
def may_write_everything(cluster: ApiServer) -> Iterator[None]:
    """Give the agent every right, so that what refuses it is the policy alone."""
    with every_right(cluster, "usage-may-everything", AGENT):
        yield


def usage(name: str, node: str = "node-1", **status: Any) -> str:
    times = dict.fromkeys(("startedAt", "observedAt"), "2026-01-01T00:00:00.500000Z")
    known = {"nodeName": node, "grant": "g", "pod": "p", **times}
    return json.dumps(
        {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "ShareUsage",
            "metadata": {"name": name},
            "status": known | status,
        }
    )


def apply(cluster: ApiServer, namespace: str, node: str, body: str) -> str:
    """What the agent of a node does."""
    return cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "-n", namespace, "-f", "-"),
        f"--as={AGENT}",
        f"--as-user-extra=authentication.kubernetes.io/node-name={node}",
        stdin=body,
    )


def test_an_agent_writes_and_rewrites_the_accounts_of_its_node(
    cluster: ApiServer, namespace: str
) -> None:
    share = {"uuid": "GPU-1", "usedNs": 2**62}
    for ended in (False, True):
        apply(cluster, namespace, "node-1", usage("own", ended=ended, shares=[share]))
    stored = json.loads(cluster.kubectl("get", "shareusage", "own", "-n", namespace, "-o", "json"))
    assert stored["status"]["ended"] is True
    assert stored["status"]["complete"] is False
    assert stored["status"]["shares"] == [share | {"exclusive": False}]


def test_an_agent_writes_no_account_of_another_node(cluster: ApiServer, namespace: str) -> None:
    with pytest.raises(LabError, match="this is node-1, its token is of node-2"):
        apply(cluster, namespace, "node-2", usage("others"))
    apply(cluster, namespace, "node-1", usage("others"))
    with pytest.raises(LabError, match="an account is of one grant of one node"):
        apply(cluster, namespace, "node-2", usage("others", node="node-2"))
    with pytest.raises(LabError, match="its own node only"):
        cluster.kubectl(
            *("delete", "shareusage", "others", "-n", namespace, f"--as={AGENT}"),
            "--as-user-extra=authentication.kubernetes.io/node-name=node-2",
        )


@pytest.mark.parametrize(
    "status",
    [
        {"startedAt": "yesterday"},
        {"durationNs": -1},
        {"shares": [{"uuid": "GPU-1", "requestMicros": 1_000_001}]},
        {"shares": [{"uuid": "GPU-1"}] * 17},
        {"pod": ""},
    ],
)
def test_an_account_that_cannot_be_is_refused(
    cluster: ApiServer, namespace: str, status: dict[str, Any]
) -> None:
    with pytest.raises(LabError, match="is invalid"):
        apply(cluster, namespace, "node-1", usage("bad", **status))
