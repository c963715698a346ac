"""`kubeshare doctor` finds nothing wrong with a lab on which KubeShare runs."""

import asyncio
import json
import sys

import pytest

from e2e.stage import Stage, eventually
from kubeshare.cli.doctor import examine
from kubeshare.install.checks.finding import Finding, Level
from kubeshare.kube.client.client import Client

pytestmark = pytest.mark.lab

NOT_WHERE_DISTRIBUTIONS_HAVE_IT = {"containerd", "driver"}
"""On a node of a lab: the configuration is in the lab's folder, the driver is not a kernel's."""


def test_all_is_well_with_the_cluster(stage: Stage) -> None:
    async def main() -> list[Finding]:
        async with Client.connect(stage.lab.kubeconfig) as client:
            return await examine(client)

    def unwell() -> list[Finding]:
        return [each for each in asyncio.run(main()) if each.level is not Level.OK]

    # Another test may just have restarted a program.
    eventually(lambda: not unwell(), "a cluster that is well", explain=lambda: str(unwell()))


def test_all_is_well_with_a_node(stage: Stage) -> None:
    node = stage.lab.nodes[0]
    command = (sys.executable, "-m", "kubeshare.cli.main", "doctor", "--node", "-o", "json")
    findings = json.loads(node.exec(*command))["findings"]
    bad = {each["check"] for each in findings if each["level"] != "ok"}
    assert bad <= NOT_WHERE_DISTRIBUTIONS_HAVE_IT, findings
    assert {"registration", "token daemon", "run folder", "device library"} <= {
        each["check"] for each in findings
    }
