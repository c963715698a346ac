"""Creates, changes and reads the objects of a fake cluster."""

from typing import Any

import yaml

from fakes import manifests
from fakes.cluster.actors import GARBAGE_COLLECTED, Actors
from kubeshare.api.types.constants import (
    CONDITION_POD_SCHEDULED,
    GATE,
    LABEL_ROLE,
    NAMESPACE,
    ROLE_POD,
    VGPU_RESOURCE,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import CONFIG_MAPS, EVENTS, NODES, PODS
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control_tier.objects import gpu_uuid
from kubeshare.simulator.control_tier.stored import holders

Raw = dict[str, Any]

GIB = 1 << 30


class ClusterObjects:
    """The objects in a fake API server, which tests write as users and administrators do.

    Args:
        server: the API server.

    Attributes:
        server: the API server.
        actors: what KubeShare works with: kube-scheduler, kubelets, node agents, controllers.
    """

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.actors = Actors(server)
        self._created = 0

    def add_node(self, name: str, gpus: int, first: int = 0, **spec: Any) -> None:
        """Adds a node; the UUIDs of its GPUs count from ``first``."""
        self.actors.devices[name] = [
            {
                "uuid": gpu_uuid(name, i),
                "index": i - first,
                "minor": i - first,
                "model": "V100",
                "memoryBytes": 16 * GIB,
            }
            for i in range(first, first + gpus)
        ]
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {WHOLE_GPU_RESOURCE: str(gpus)}, "conditions": ready}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.server.seed(NODES, {"metadata": metadata, "spec": spec, "status": status})
        self.actors.publish()

    def configure(self, **said: Any) -> None:
        """Writes the configuration with these keys; replaces the former one."""
        metadata = {"name": "kubeshare", "namespace": NAMESPACE}
        data = {"config.yaml": yaml.safe_dump(said)}
        self.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": data})

    def offer(self, node: str, gpus: int) -> None:
        """Sets the number of allocatable GPUs of a node."""
        offered = {"allocatable": {WHOLE_GPU_RESOURCE: str(gpus)}}
        self.server.change(NODES, node, "", lambda obj: obj["status"].update(offered))

    def lose_placeholders(self) -> None:
        """Removes all placeholders by force, so that nothing reserves the GPUs of vGPUs."""
        for placeholder in self.placeholders():
            self.server.remove(PODS, placeholder, NAMESPACE)

    def link(self, node: str, **links: str) -> None:
        """Sets the links between a node's GPUs: ``gpu_0_2="NV2"``; other pairs are ``SYS``."""
        found = [
            {"a": int(a), "b": int(b), "link": link}
            for a, b, link in ((*pair.split("_")[1:], link) for pair, link in links.items())
        ]
        self.server.change(GPUNODES, node, "", lambda obj: obj["spec"].update(links=found))

    def reserve(self, node: str, *gpuids: str) -> None:
        """Adds vGPUs to a node, and configures a pool that keeps idle vGPUs."""
        self.configure(pool={"policy": "reservation"})
        for gpuid in gpuids:
            self.server.seed(VGPUS, manifests.vgpu(gpuid, node, pool="reserved"))

    def share(self, name: str, request: object = "0.3", **more: Any) -> Raw:
        """Creates a SharePod; ``more`` are ``spec``, ``annotations``, ``labels`` and fields of
        ``spec.gpu``, whose ``memory`` is 1Gi by default, or ``gpu``, all these fields.
        """
        annotations, spec = more.pop("annotations", {}), more.pop("spec", {})
        labels, gpu = more.pop("labels", {}), more.pop("gpu", None)
        if gpu is None and request is not None:
            gpu = {"request": request, "memory": "1Gi", **more}
        self._created += 1
        metadata = {
            "namespace": "default",
            "annotations": annotations,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:{self._created:02}Z",
        }
        made = manifests.sharepod(name, gpu, metadata=metadata, **spec)
        return self.server.seed(SHAREPODS, made)

    def native_pod(self, name: str, gpus: int = 1, **spec: Any) -> None:
        """Creates a pod that requests whole GPUs."""
        limits = {WHOLE_GPU_RESOURCE: str(gpus)}
        pod = manifests.pod(name, limits, metadata={"namespace": "default"}, **spec)
        self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def plain(self, name: str, request: str = "0.3", **more: Any) -> Raw:
        """Creates a plain pod that requests a share, as the admission policy mutates it.

        ``annotations``, ``spec`` and ``owner``, the uid of its controller, where given.
        """
        asked = {"kubeshare.nthu/request": request, "kubeshare.nthu/memory": "1Gi"}
        self._created += 1
        metadata: Raw = {
            "namespace": "default",
            "annotations": asked | more.pop("annotations", {}),
            "labels": {LABEL_ROLE: ROLE_POD} | more.pop("labels", {}),
            "creationTimestamp": f"2026-01-01T00:00:{self._created % 60:02}Z",
        }
        if owner := more.pop("owner", ""):
            controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r"}
            metadata["ownerReferences"] = [{**controller, "uid": owner, "controller": True}]
        spec = {"schedulingGates": [{"name": GATE}]} | more.pop("spec", {})
        pod = manifests.pod(name, {VGPU_RESOURCE: "1"}, metadata=metadata, **spec)
        return self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def replicas(self, name: str, count: int, request: str = "0.3") -> None:
        """Starts a controller that keeps this number of plain pods."""

        def make() -> None:
            self.plain(f"{name}-{self._created}", request, owner=name)

        self.actors.controllers[name] = (make, count)
        self.actors.reconcile()

    def clear(self) -> None:
        """Deletes all SharePods and plain pods."""
        for sharepod in self.server.all(SHAREPODS):
            self.delete(sharepod["metadata"]["name"])
        self.actors.controllers.clear()
        for pod in self.plain_pods():
            self.actors.delete(pod)

    def plain_pods(self) -> list[Raw]:
        """The plain pods."""
        return self.server.all(PODS, "default", labels=f"{LABEL_ROLE}={ROLE_POD}")

    def pod_condition(self, name: str) -> Raw:
        """The scheduler's condition of a plain pod; empty before its first decision."""
        pod = self.pod(name)
        conditions = pod["status"].get("conditions", []) if pod else []
        return next((each for each in conditions if each["type"] == CONDITION_POD_SCHEDULED), {})

    def delete(self, name: str, propagation: str = "Background") -> None:
        """Deletes a SharePod as ``kubectl`` does; its finalizers delay the deletion."""
        if propagation in GARBAGE_COLLECTED:
            more = [GARBAGE_COLLECTED[propagation]]

            def keep(obj: Raw) -> None:
                obj["metadata"]["finalizers"] = obj["metadata"].get("finalizers", []) + more

            self.server.change(SHAREPODS, name, "default", keep)
        self.server.delete(SHAREPODS, name, "default")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """Ends the containers of a pod, one after the other."""
        containers = [
            {"name": name, "state": {"terminated": {"finishedAt": f"2026-01-01T00:0{minute}:00Z"}}}
            for name, minute in (("main", 9), ("other", 5))
        ]
        ended = {"phase": phase, "containerStatuses": containers}
        self.server.change(PODS, name, "default", lambda pod: pod["status"].update(ended))

    # Current objects.

    def sharepod(self, name: str) -> Raw:
        found = self.server.stored(SHAREPODS, name, "default")
        assert found is not None, f"there is no SharePod {name}"
        return found

    def condition(self, name: str, kind: str) -> Raw:
        """A condition of a SharePod; empty if it has none of this type."""
        found = self.server.find(SHAREPODS, name, "default")
        assert found is not None, f"there is no SharePod {name}"
        conditions = found.get("status", {}).get("conditions", [])
        return next((dict(each) for each in conditions if each["type"] == kind), {})

    def ready(self, name: str) -> bool:
        return bool(self.condition(name, "Ready").get("status") == "True")

    def pod_uids(self) -> dict[str, str]:
        """The name of each holder -> its ``podUid``."""
        found = [each for vgpu in self.server.view(VGPUS) for each in holders(vgpu)]
        return {each["name"]: each["podUid"] for each in found}

    def vgpu(self, gpuid: str) -> Raw:
        found = self.server.stored(VGPUS, gpuid)
        assert found is not None, f"there is no vGPU {gpuid}"
        return found

    def pod(self, name: str, namespace: str = "default") -> Raw | None:
        return self.server.stored(PODS, name, namespace)

    def running(self, *names: str) -> bool:
        pods = [self.server.find(PODS, name, "default") for name in names]
        return all(pod is not None and pod["status"]["phase"] == "Running" for pod in pods)

    def vgpus(self) -> dict[str, list[str]]:
        """GPUID -> the names of its holders."""
        return {
            vgpu["metadata"]["name"]: [each["name"] for each in holders(vgpu)]
            for vgpu in self.server.view(VGPUS)
        }

    def shares_gpu(self, *names: str) -> bool:
        """Whether exactly these are the holders of one vGPU."""
        return sorted(names) in [sorted(found) for found in self.vgpus().values()]

    def placeholders(self) -> list[str]:
        pods = self.server.view(PODS, "kubeshare-system")
        return [pod["metadata"]["name"] for pod in pods]

    def events(self, name: str) -> list[str]:
        """``reason: note`` of each event about an object."""
        found = self.server.view(EVENTS)
        return [
            f"{each['reason']}: {each['note']}"
            for each in found
            if each["regarding"]["name"] == name
        ]
