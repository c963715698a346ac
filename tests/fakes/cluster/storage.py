"""Creates volumes, claims and storage classes."""

from typing import Any

from kubeshare.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kubeshare.simulator.control import FakeApiServer

Raw = dict[str, Any]


class Storage:
    """The storage objects for pods in namespace ``default``."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server

    def bound(self, name: str, node: str) -> None:
        """A volume that only one node reaches, bound to a claim of the same name."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        self._server.seed(
            PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": {"nodeAffinity": affinity}}
        )
        metadata = {"name": name, "namespace": "default"}
        claim = {"metadata": metadata, "spec": {"volumeName": name}}
        self._server.seed(PERSISTENT_VOLUME_CLAIMS, claim)

    def claim(self, name: str, storage: str) -> None:
        """A claim of 1Gi that is bound to no volume yet."""
        spec = {
            "storageClassName": storage,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        metadata = {"name": name, "namespace": "default"}
        self._server.seed(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": spec})

    def free(self, name: str, node: str, storage: str, capacity: str = "1Gi") -> None:
        """A local volume of a node that no claim is bound to."""
        self.bound(name, node)
        self._server.remove(PERSISTENT_VOLUME_CLAIMS, name, "default")
        spec = {
            "storageClassName": storage,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": capacity},
        }

        def release(volume: Raw) -> None:
            volume["spec"] |= spec
            volume["status"] = {"phase": "Available"}

        self._server.change(PERSISTENT_VOLUMES, name, "", release)

    def kind(self, name: str, *, waits: bool, **said: Any) -> None:
        """A StorageClass that binds claims at once or, with ``waits``, for the first consumer."""
        mode = "WaitForFirstConsumer" if waits else "Immediate"
        kind = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode, **said}
        self._server.seed(STORAGE_CLASSES, {"metadata": {"name": name}, **kind})
