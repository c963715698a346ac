"""Keeps as many SharePods as a SharePodSet asks for, as a ReplicationController does for pods.

kubectl apply -f examples/replicas/definition.yaml
python examples/replicas/controller.py &
kubectl apply -f examples/replicas/set.yaml
"""

import queue
from threading import Thread, Timer
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType, on_error_retry

GROUP = "examples.kubeshare.nthu"
SharePod = create_namespaced_resource("kubeshare.nthu", "v1", "SharePod", "sharepods")
SharePodSet = create_namespaced_resource(GROUP, "v1", "SharePodSet", "sharepodsets")
ENDED = {"Succeeded", "Failed"}
NOT_FOUND = 404

client = Client()
changed: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()


def watch_sets() -> None:
    """Queue every set that is added or changed."""
    for _, one in client.watch(SharePodSet, namespace="*", on_error=on_error_retry):
        changed.put((one.metadata.namespace, one.metadata.name))


def watch_sharepods() -> None:
    """Queue the set of every SharePod that is added, changed or deleted."""
    for _, sharepod in client.watch(SharePod, namespace="*", on_error=on_error_retry):
        for owner in sharepod.metadata.ownerReferences or ():
            if owner.kind == "SharePodSet":
                changed.put((sharepod.metadata.namespace, owner.name))


def is_ready(sharepod: Any) -> bool:
    """Return whether the SharePod's condition says that its pod is ready."""
    conditions = (sharepod.status or {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def child(owner: Any) -> Any:
    """Return a new SharePod of a set; Kubernetes deletes it with the set."""
    template = owner.spec["template"]
    reference = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "SharePodSet",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
    }
    metadata = template.get("metadata", {}) | {
        "generateName": f"{owner.metadata.name}-",
        "namespace": owner.metadata.namespace,
        "ownerReferences": [reference],
    }
    return SharePod({"metadata": metadata, "spec": template["spec"]})


def reconcile(namespace: str, name: str) -> None:
    """Create the missing SharePods of a set and delete the surplus; read both from the cluster."""
    owner = client.get(SharePodSet, name, namespace=namespace)
    children = [
        sharepod
        for sharepod in client.list(SharePod, namespace=namespace)
        if any(one.uid == owner.metadata.uid for one in sharepod.metadata.ownerReferences or ())
        and sharepod.metadata.deletionTimestamp is None
    ]
    ended = [one for one in children if (one.status or {}).get("phase") in ENDED]
    # Surplus SharePods that are not ready are deleted first.
    living = sorted((one for one in children if one not in ended), key=is_ready, reverse=True)
    wanted = owner.spec["replicas"]
    for one in ended + living[wanted:]:
        client.delete(SharePod, one.metadata.name, namespace=namespace)
    for _ in range(wanted - len(living)):
        client.create(child(owner))
    kept = living[:wanted]
    status = {"replicas": len(living), "readyReplicas": sum(map(is_ready, kept))}
    if owner.status != status:
        patch = {"status": status}
        client.patch(
            SharePodSet.Status, name, patch, namespace=namespace, patch_type=PatchType.MERGE
        )


for watch in (watch_sets, watch_sharepods):
    Thread(target=watch, daemon=True).start()
while True:
    key = changed.get()
    try:
        reconcile(*key)
    except ApiError as error:
        print(f"{'/'.join(key)}: {error}", flush=True)
        if error.status.code != NOT_FOUND:
            Timer(5, changed.put, [key]).start()
