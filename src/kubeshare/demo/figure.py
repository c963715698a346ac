"""The jobs of figure 6, their stages and their target shares.

The paper's text prints .4, .3, .3 for the third stage; its own rules and the
requests that it states (A .3, B .4, C .3) give .3, .4, .3, and that is the
target here.
"""

from msgspec import Struct

from kubeshare.core.token.fair_share import fair_shares
from kubeshare.core.units import MICROS, parse_share

AFFINITY = "figure-6"
CAPTION = (
    "Figure 6 of the KubeShare paper. Dashed: the targets that follow from requests and limits. "
    "(The paper's text prints .4/.3/.3 for A, B, C together; its rules and requests give .3/.4/.3.)"
)


class Job(Struct, frozen=True):
    """A SharePod of the figure: its name and its annotations' values."""

    name: str
    request: str
    limit: str
    memory: str = "1Gi"

    def manifest(self, namespace: str, image: str) -> dict[str, object]:
        """The SharePod with the published annotations and a workload that never pauses."""
        annotations = {
            "kubeshare/gpu_request": self.request,
            "kubeshare/gpu_limit": self.limit,
            "kubeshare/gpu_mem": self.memory,
            "kubeshare/sched_affinity": AFFINITY,
        }
        return {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "SharePod",
            "metadata": {"name": self.name, "namespace": namespace, "annotations": annotations},
            "spec": {"containers": [burn(image)], "terminationGracePeriodSeconds": 1},
        }


class Stage(Struct, frozen=True):
    """A period with one set of jobs: its title, the jobs, and what changes to reach it."""

    title: str
    running: tuple[str, ...]
    comes: str = ""
    goes: str = ""


JOBS = (Job("a", "0.3", "0.6"), Job("b", "0.4", "0.6"), Job("c", "0.3", "0.5"))
STAGES = (
    Stage("A alone", ("a",), comes="a"),
    Stage("B comes", ("a", "b"), comes="b"),
    Stage("C comes", ("a", "b", "c"), comes="c"),
    Stage("C ends", ("a", "b"), goes="c"),
    Stage("B ends", ("a",), goes="b"),
)


def targets(stage: Stage) -> dict[str, float]:
    """The share of each job of a stage, as a fraction of the GPU."""
    asks = {
        job.name: (parse_share(job.request, "request"), parse_share(job.limit, "limit"))
        for job in JOBS
        if job.name in stage.running
    }
    return {name: share / MICROS for name, share in fair_shares(asks).items()}


def burn(image: str) -> dict[str, object]:
    """A container that keeps eight kernels of a millisecond in flight until it is stopped."""
    return {
        "name": "burn",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["burn", "--kernel-us", "1000", "--inflight", "8", "--seconds", "3600"],
    }


def native_pod(name: str, namespace: str, image: str) -> dict[str, object]:
    """A pod that does not share: it requests a whole GPU of Kubernetes."""
    container = burn(image) | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
