"""Kueue in a lab: installed from its own manifests, with certificates that a test makes."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

GROUP: Final = "kueue.x-k8s.io"
QUEUE_LABEL: Final = f"{GROUP}/queue-name"
GATE: Final = f"{GROUP}/admission"

_SYSTEM: Final = "kueue-system"
_EXEMPT: Final = ("kube-system", _SYSTEM, NAMESPACE)
_DEPLOYMENT: Final = "deployments/kueue-controller-manager"
_WEBHOOKS: Final = "kueue-webhook-service"


@contextmanager
def installed(stage: Stage, folder: Path) -> Iterator[None]:
    """Kueue on a lab, until the end of the block.

    Args:
        stage: the lab.
        folder: for the certificates.
    """
    objects = _manifests(stage, folder)
    apply = ("apply", "--server-side", "-f", "-")
    try:
        stage.kubectl(*apply, stdin=yaml.safe_dump_all(objects))
        eventually(
            lambda: _available(stage),
            "Kueue to be available",
            explain=lambda: stage.kubectl("logs", "-n", _SYSTEM, _DEPLOYMENT, "--tail=20"),
        )
        yield
    finally:
        hooks = [one for one in objects if one["kind"].endswith("WebhookConfiguration")]
        kinds = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
        others = (*hooks, *kinds)
        rest = [one for one in objects if one not in others and one["kind"] != "Namespace"]
        try:
            _delete(stage, hooks)
            _delete(stage, kinds)
            # Its objects have finalizers, which Kueue removes: it has to run until they are gone.
            eventually(
                lambda: not _left(stage),
                "the kinds of Kueue to be gone",
                explain=lambda: str(_left(stage)),
            )
        finally:
            _delete(stage, rest)
            stage.kubectl("delete", "namespace", _SYSTEM, "--wait=false")


def _delete(stage: Stage, objects: list[Raw]) -> None:
    stage.kubectl(
        *("delete", "--ignore-not-found", "--wait=false", "-f", "-"),
        stdin=yaml.safe_dump_all(objects),
    )


def _left(stage: Stage) -> list[str]:
    """The kinds of Kueue that the cluster still has."""
    found = stage.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    names = [one["metadata"]["name"] for one in found]
    return [name for name in names if name.endswith(GROUP)]


def _available(stage: Stage) -> bool:
    found = stage.lab.api.get(f"/apis/apps/v1/namespaces/{_SYSTEM}/{_DEPLOYMENT}")
    return bool(found["status"].get("availableReplicas"))


def _manifests(stage: Stage, folder: Path) -> list[Raw]:
    programs = binaries.kueue(Progress())
    authority = Authority(folder / "kueue")
    pair = authority.identity("webhooks", _WEBHOOKS, hosts=(f"{_WEBHOOKS}.{_SYSTEM}.svc",))
    bundle = _text(authority.certificate)
    rendered = stage.kubectl("kustomize", str(programs / "config" / "default"))
    objects = [one for one in yaml.safe_load_all(rendered) if one["kind"] != "APIService"]
    for one in objects:
        match one["kind"]:
            case "Deployment":
                _run_from(one["spec"]["template"]["spec"], programs)
            case "ConfigMap":
                one["data"] = {key: _configured(text) for key, text in one["data"].items()}
            case "Secret":
                files = {"tls.crt": pair.certificate, "tls.key": pair.key}
                one["data"] = {key: _text(file) for key, file in files.items()}
            case "CustomResourceDefinition":
                if "conversion" in one["spec"]:
                    one["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = bundle
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
                for webhook in one["webhooks"]:
                    webhook["clientConfig"]["caBundle"] = bundle
                    if "namespaceSelector" in webhook:
                        webhook["namespaceSelector"] = _not_exempt()
    return objects


def _text(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _not_exempt() -> Raw:
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*_EXEMPT]}
    return {"matchExpressions": [named]}


def _configured(text: str) -> str:
    """Its configuration, without what a lab does not need, and with the namespaces it leaves."""
    configuration: Raw = yaml.safe_load(text)
    configuration["internalCertManagement"] = {"enable": False}
    configuration["leaderElection"]["leaderElect"] = False
    configuration["managedJobsNamespaceSelector"] = _not_exempt()
    return yaml.safe_dump(configuration)


def _run_from(pod: Raw, programs: Path) -> None:
    """Run the program that was built here, in KubeShare's own image."""
    (manager,) = pod["containers"]
    manager |= {"image": "kubeshare:dev", "imagePullPolicy": "IfNotPresent"}
    manager["command"] = ["/opt/kueue/kueue"]
    manager["args"].append("--feature-gates=VisibilityOnDemand=false")
    manager["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    manager["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    mounts = {"program": "/opt/kueue", "cert": "/etc/kueue/metrics/certs"}
    manager["volumeMounts"] += [{"name": name, "mountPath": at} for name, at in mounts.items()]
    pod["volumes"].append({"name": "program", "hostPath": {"path": str(programs)}})
    pod["securityContext"] |= {"runAsUser": 65532}


def queue(stage: Stage, namespace: str, name: str, quota: dict[str, str]) -> None:
    """A ClusterQueue with a quota of some resources, and a LocalQueue of its name for it."""
    flavor = {
        "name": "any",
        "resources": [{"name": k, "nominalQuota": v} for k, v in quota.items()],
    }
    version = f"{GROUP}/v1beta2"
    selector: Raw = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    objects = [
        {"kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": selector,
                "resourceGroups": [{"coveredResources": [*quota], "flavors": [flavor]}],
            },
        },
        {
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]
    manifests = [{"apiVersion": version} | one for one in objects]
    stage.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(manifests))


def workloads(stage: Stage, namespace: str) -> list[Raw]:
    """Kueue's Workloads of a namespace."""
    return stage.items(f"/apis/{GROUP}/v1beta2/namespaces/{namespace}/workloads")
