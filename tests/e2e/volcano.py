"""Volcano in a lab: installed from its own manifests, with certificates that a test makes."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from e2e.manifests import template
from e2e.space import Space
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

GROUP: Final = "batch.volcano.sh"
SCHEDULER: Final = "volcano-scheduler"

_SYSTEM: Final = "volcano-system"
_EXEMPT: Final = ("kube-system", _SYSTEM, NAMESPACE)
_WEBHOOKS: Final = "volcano-admission-service"
_SECRET: Final = "volcano-admission-secret"
_LEFT_OUT: Final = ("volcano-admission-init", "volcano-monitoring")
"""The Job that makes certificates with a shell, and the namespace of what watches Volcano."""
_PROGRAMS: Final = {
    "volcano-admission": "webhook-manager",
    "volcano-controllers": "controller-manager",
    SCHEDULER: "scheduler",
}
"""The Deployments, and the programs that were built for them."""


@contextmanager
def installed(stage: Stage, folder: Path) -> Iterator[None]:
    """Volcano on a lab, until the end of the block.

    Args:
        stage: the lab.
        folder: for the certificates.
    """
    objects = _manifests(folder)
    try:
        stage.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        for name in _PROGRAMS:
            _until_available(stage, name)
        _until_open(stage, "default")
        yield
    finally:
        hooks = [one for one in objects if one["kind"].endswith("WebhookConfiguration")]
        rest = [one for one in objects if one not in hooks and one["kind"] != "Namespace"]
        for some in (hooks, rest):
            stage.kubectl(
                *("delete", "--ignore-not-found", "--wait=false", "-f", "-"),
                stdin=yaml.safe_dump_all(some),
            )
        stage.kubectl("delete", "namespace", _SYSTEM, "--wait=false")


def _until_available(stage: Stage, name: str) -> None:
    path = f"/apis/apps/v1/namespaces/{_SYSTEM}/deployments/{name}"
    eventually(
        lambda: stage.lab.api.get(path)["status"].get("availableReplicas"),
        f"{name} to be available",
        explain=lambda: _log(stage, name),
    )


def _until_open(stage: Stage, name: str) -> None:
    """Wait until a queue takes Jobs: Volcano's webhook refuses them before."""
    path = "/apis/scheduling.volcano.sh/v1beta1/queues"

    def state() -> str:
        found = stage.find(path, name) or {}
        return str(found.get("status", {}).get("state", ""))

    eventually(
        lambda: state() == "Open",
        f"Volcano's queue {name} to be open",
        explain=lambda: "\n".join((state(), *(_log(stage, one) for one in _PROGRAMS))),
    )


def scheduler_log(stage: Stage) -> str:
    """What Volcano's scheduler has logged of late."""
    return _log(stage, SCHEDULER, lines=200)


def _log(stage: Stage, name: str, lines: int = 20) -> str:
    return stage.kubectl("logs", "-n", _SYSTEM, f"deployments/{name}", f"--tail={lines}")


def _manifests(folder: Path) -> list[Raw]:
    programs = binaries.volcano(Progress())
    authority = Authority(folder / "volcano")
    pair = authority.identity("webhooks", _WEBHOOKS, hosts=(f"{_WEBHOOKS}.{_SYSTEM}.svc",))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    text = (programs / "installer" / "volcano-development.yaml").read_text()
    found = [one for one in yaml.safe_load_all(text) if one]
    objects: list[Raw] = [one for one in found if not one["metadata"]["name"].startswith(_LEFT_OUT)]
    objects.append(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET, "namespace": _SYSTEM},
            "data": {
                key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()
            },
        }
    )
    for one in objects:
        if one["kind"] == "Deployment":
            _run_from(one["metadata"]["name"], one["spec"]["template"]["spec"], programs)
        if one["kind"].endswith("WebhookConfiguration"):
            for webhook in one["webhooks"]:
                named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
                selector = {"matchExpressions": [named | {"values": [*_EXEMPT]}]}
                webhook["namespaceSelector"] = selector
    return objects


def _run_from(name: str, pod: Raw, programs: Path) -> None:
    """Run the program that was built here, in KubeShare's own image."""
    (one,) = pod["containers"]
    one |= {"image": "kubeshare:dev", "imagePullPolicy": "IfNotPresent"}
    one["command"] = [f"/opt/volcano/{_PROGRAMS[name]}"]
    one["args"] = [word for word in one["args"] if word != "2>&1"]
    one["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    one.setdefault("volumeMounts", []).append({"name": "program", "mountPath": "/opt/volcano"})
    pod.setdefault("volumes", []).append({"name": "program", "hostPath": {"path": str(programs)}})
    # A lab has no SELinux.
    pod["securityContext"].pop("seLinuxOptions", None)


def create_job(
    space: Space,
    name: str,
    request: str,
    command: tuple[str, ...],
    *,
    members: int = 1,
    scheduler: str = "volcano",
    queue: str = "default",
    cpu: str = "10m",
) -> None:
    """A Job of Volcano with one task.

    Args:
        space: the namespace.
        name: of the Job, of its task and of its pods' label ``app``.
        request: the part of a GPU of each pod; none if it is empty.
        command: of their one container.
        members: how many pods it has, and needs at least.
        scheduler: that binds its pods.
        queue: of Volcano.
        cpu: that each pod requests.
    """
    pods = template(name, request, command, restartPolicy="Never")
    if not request:
        del pods["metadata"]["annotations"]
    pods["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    task = {"name": name, "replicas": members, "template": pods}
    spec = {"minAvailable": members, "schedulerName": scheduler, "queue": queue, "tasks": [task]}
    space.create(
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def phase(stage: Stage, namespace: str, name: str) -> str:
    """The phase of a Job of Volcano; empty where it has none yet."""
    jobs = stage.items(f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/jobs")
    (found,) = (one for one in jobs if one["metadata"]["name"] == name)
    return str(found.get("status", {}).get("state", {}).get("phase", ""))


@contextmanager
def queue(stage: Stage, name: str, capability: dict[str, str]) -> Iterator[None]:
    """A queue of Volcano with a limit of some resources, until the end of the block."""
    manifest = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"reclaimable": False, "weight": 1, "capability": capability},
    }
    stage.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))
    try:
        _until_open(stage, name)
        yield
    finally:
        stage.kubectl("delete", "queues.scheduling.volcano.sh", name, "--wait=false")
