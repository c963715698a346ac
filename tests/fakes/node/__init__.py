"""A node for tests: objects, GPUs, daemon and kubelet."""

from fakes.node.gpus import A_GPU, OTHER_GPU, FixedGpus
from fakes.node.kubelet import FakeKubelet
from fakes.node.node import (
    NODE,
    Cluster,
    Running,
    claim_reference,
    gpu_spec_file,
    write_daemon_status,
)

__all__ = [
    "A_GPU",
    "NODE",
    "OTHER_GPU",
    "Cluster",
    "FakeKubelet",
    "FixedGpus",
    "Running",
    "claim_reference",
    "gpu_spec_file",
    "write_daemon_status",
]
