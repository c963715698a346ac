"""The machine on which containers are bound to CPUs."""

import pytest

from fakes.node import Cluster, Running
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer
from node.cpu.machine import Machine


@pytest.fixture
def machine(server: FakeApiServer, cluster: Cluster, paths: NodePaths, agent: Running) -> Machine:
    del cluster
    return Machine(server, paths, agent)
