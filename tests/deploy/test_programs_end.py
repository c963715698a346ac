"""The programs end in order at SIGTERM, before Kubernetes would kill them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx2
import pytest

from deadlines import DEADLINE_S, eventually
from deploy.helm import CHART
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.install.readiness import WORKLOADS
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.control_plane.ports import reserve_ports
from kubeshare.lab.errors import LabError

POD: Final = "a-replica"
LONGEST_END_SECONDS: Final = {"token-daemon": 5}
"""What Kubernetes has to give a program to end; 10 s and some room where it is not here. The tests
of ``kube/controller/test_runtime.py`` show the 10 s, on a clock of their own."""


@contextmanager
def started(
    system: ApiServer, module: str, port: int, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """A program with the rights of an administrator."""
    command = [sys.executable, "-m", f"kubeshare.{module}", *options]
    command += ["--kubeconfig", str(system.kubeconfig)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "POD_NAME": POD}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            eventually(lambda: is_ready(process, port), f"{module} is ready")
            yield process
        finally:
            process.kill()


def is_ready(process: subprocess.Popen[str], port: int) -> bool:
    if process.poll() is not None:
        pytest.fail(f"it has ended: {process.communicate()[1]}")
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def holder(system: ApiServer, lease: str) -> str | None:
    """Who holds a Lease; None if there is none."""
    try:
        found = system.kubectl("get", "lease", lease, "-n", NAMESPACE, "-o", "json")
    except LabError:
        return None
    return str(json.loads(found)["spec"].get("holderIdentity", ""))


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("module", "lease"),
    [
        ("scheduler", "kubeshare-scheduler"),
        ("device_manager", "kubeshare-device-manager"),
        ("extender", None),
    ],
)
def test_a_program_ends_at_sigterm_and_releases_its_lease(
    system: ApiServer, module: str, lease: str | None
) -> None:
    health, calls = reserve_ports(2)
    ports = ["--port", str(health)]
    if lease is None:
        ports = ["--port", str(calls), "--health-port", str(health)]
    with started(system, module, health, *ports) as process:
        if lease is not None:
            eventually(lambda: holder(system, lease) == POD, "it leads")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["event"] for line in lines if line["event"] in ("ending", "ended")] == [
        "ending",
        "ended",
    ]
    assert not [line for line in lines if line["level"] == "error"], said
    if lease is not None:
        assert holder(system, lease) == "", "the next leader would wait for it"
        system.kubectl("delete", "lease", lease, "-n", NAMESPACE)


def test_kubernetes_gives_each_program_the_time_that_it_needs() -> None:
    ours = manifests.load(manifests.Options(extender=True))
    programs = [one for one in ours if one["kind"] in WORKLOADS]
    assert len(programs) == 5
    for one in programs:
        name = one["metadata"]["name"].removeprefix("kubeshare-")
        given = one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert given >= LONGEST_END_SECONDS.get(name, 12), name
    page = (CHART / "templates" / "web.yaml").read_text()
    assert "terminationGracePeriodSeconds: 15\n" in page
