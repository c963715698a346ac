"""A Kubernetes cluster in memory, for tests of the programs that share its GPUs.

``FakeCluster`` has a ``FakeApiServer`` and the actors that KubeShare works with: a
kube-scheduler that binds pods where they fit, kubelets that run them, node agents
that report GPUs and release holders, and the garbage collector. The programs under
test are the real ones, in virtual time. ``scenario`` turns a coroutine that takes a
``FakeCluster`` into a test; ``tests/expectations`` has the expectations of such tests.
"""

from fakes.cluster.cluster import FakeCluster
from fakes.cluster.cluster_objects import GIB
from fakes.cluster.disruptions import seed_held
from fakes.cluster.scenarios import run_scenario, scenario
from kubeshare.simulator.control_tier.objects import gpu_uuid
from kubeshare.simulator.control_tier.programs import RESTART

__all__ = [
    "GIB",
    "RESTART",
    "FakeCluster",
    "gpu_uuid",
    "run_scenario",
    "scenario",
    "seed_held",
]
