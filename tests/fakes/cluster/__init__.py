"""A Kubernetes cluster in memory, for tests of the programs that share its GPUs.

``World`` has a ``FakeApiServer`` and the actors that KubeShare works with: a
kube-scheduler that binds pods where they fit, kubelets that run them, node agents
that report GPUs and release holders, and the garbage collector. The programs under
test are the real ones, in virtual time. ``scenario`` turns a coroutine that takes a
``World`` into a test; ``tests/expectations.py`` has the expectations of such tests.
"""

from fakes.cluster.disruptions import seed_held
from fakes.cluster.scenarios import run_scenario, scenario
from fakes.cluster.world import GIB, RESTART, World, gpu_uuid

__all__ = [
    "GIB",
    "RESTART",
    "World",
    "gpu_uuid",
    "run_scenario",
    "scenario",
    "seed_held",
]
