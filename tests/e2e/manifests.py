"""Manifests of what makes pods, and of what bounds them."""

from collections.abc import Sequence
from typing import Any

from e2e.space import REST, container
from e2e.stage import Raw

ACCESS = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Mi"}},
}


def template(
    name: str,
    request: str,
    command: Sequence[str] = REST,
    annotations: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A template of pods that share.

    Args:
        name: their label ``app``.
        request: the part of a GPU.
        command: of their one container.
        annotations: more than that.
        spec: more of the PodSpec.
    """
    asked = {"kubeshare.nthu/request": request, **(annotations or {})}
    return {
        "metadata": {"labels": {"app": name}, "annotations": asked},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container(command)], **spec},
    }


def deployment(name: str, pods: Raw, replicas: int = 1) -> Raw:
    """A Deployment of pods from a template."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": pods,
        },
    }


def job(name: str, pods: Raw, **spec: Any) -> Raw:
    """A Job of pods from a template."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": pods, **spec},
    }


def budget(name: str, at_least: int) -> Raw:
    """A PodDisruptionBudget for the pods with the label ``app`` of its name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": at_least, "selector": {"matchLabels": {"app": name}}},
    }


def quota(name: str, **hard: str) -> Raw:
    """A ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard},
    }


def storage_class(name: str, binding: str) -> Raw:
    """A StorageClass of volumes that somebody has made beforehand."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": binding,
    }


def volume(name: str, storage: str, node: str) -> Raw:
    """A PersistentVolume on the disk of one node."""
    reached = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ACCESS["accessModes"],
            "capacity": {"storage": "1Mi"},
            "storageClassName": storage,
            "persistentVolumeReclaimPolicy": "Retain",
            # The kubelet's own folder: a disk of the node, and nothing of the machine's.
            "hostPath": {"path": f"/var/lib/kubelet/{name}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [reached]}]}},
        },
    }


def claim(name: str, storage: str) -> Raw:
    """A PersistentVolumeClaim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"storageClassName": storage, **ACCESS},
    }
