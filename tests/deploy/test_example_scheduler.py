"""The example's decisions on a real API server; what becomes of them is played in the lab."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubeshare.lab.control_plane.api_server import ApiServer, wait_until

pytestmark = pytest.mark.apiserver

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES = ("chosen-1", "chosen-2")


@pytest.fixture
def gpunodes(cluster: ApiServer) -> Iterator[None]:
    """Two nodes with a GPU each."""
    made = [
        {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "GPUNode",
            "metadata": {"name": node},
            "spec": {"devices": [{"uuid": f"GPU-{node}", "index": 0, "memoryBytes": 16 << 30}]},
        }
        for node in NODES
    ]
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(made))
    yield
    cluster.kubectl("delete", "gpunode", *NODES)


@pytest.mark.usefixtures("gpunodes")
def test_it_reads_both_spellings_and_keeps_a_gpuid_that_was_given(
    cluster: ApiServer, namespace: str
) -> None:
    here = ("-n", namespace)
    for example in ("sharepod", "gpuid"):
        cluster.kubectl("create", *here, "-f", str(EXAMPLES / f"{example}.yaml"))
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
    scheduler = subprocess.Popen(
        [sys.executable, EXAMPLES / "custom_scheduler.py"], env=environment
    )

    def decided() -> dict[str, tuple[str, str]]:
        listed = json.loads(cluster.kubectl("get", "shp", *here, "-o", "json"))["items"]
        return {
            one["metadata"]["name"]: (one["spec"]["nodeName"], one["spec"]["gpu"]["id"])
            for one in listed
            if "nodeName" in one["spec"]
        }

    try:
        wait_until(lambda: len(decided()) == 3, "three decisions")
    finally:
        scheduler.kill()
        scheduler.wait()

    places = decided()
    assert {gpuid for _, gpuid in places.values()} >= {"abcde"}
    node, gpuid = places["trainer"]
    assert gpuid == f"{node}-gpu-0"
    assert places["reader"][1] == places["writer"][1] == "abcde"
