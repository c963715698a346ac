"""A cluster in memory, for tests of the programs that share its GPUs.

``World`` has a ``FakeApiServer`` and the actors that KubeShare works with: a
kube-scheduler that binds pods where they fit, kubelets that run them, node agents
that name GPUs and release holders, and the garbage collector. The programs under
test are the real ones, in virtual time. ``story`` makes a test of what is told of a
world; ``tests/expectations.py`` has what such tests expect.
"""

from fakes.cluster.disruptions import seed_held
from fakes.cluster.scenarios import in_world, story
from fakes.cluster.world import GIB, RESTART, World, gpu_uuid

__all__ = [
    "GIB",
    "RESTART",
    "World",
    "gpu_uuid",
    "in_world",
    "seed_held",
    "story",
]
