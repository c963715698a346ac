"""A namespace of one test: what it applies there, and what becomes of it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from e2e.stage import DEADLINE, Place, Raw, Stage, eventually
from kubeshare.api.types.constants import (
    CONDITION_POD_SCHEDULED,
    DRA_DRIVER,
    GROUP,
    POOL_STATIC,
    placeholder_name,
)
from kubeshare.lab.errors import LabError

IMAGE = "kubeshare:dev"
BURN = ("burn", "--kernel-us", "1000", "--inflight", "8", "--seconds", "3600")
REST = ("timeout", "3600", "sleep", "infinity")
"""Ends at SIGTERM, which the first process of a container ignores unless it handles it."""

_RUNNING = (
    "apis/batch/v1/{}/cronjobs",
    "apis/batch/v1/{}/jobs",
    "apis/apps/v1/{}/deployments",
    "apis/apps/v1/{}/replicasets",
    "apis/apps/v1/{}/statefulsets",
    "apis/apps/v1/{}/daemonsets",
    f"apis/{GROUP}/v1/{{}}/sharepods",
    "api/v1/{}/pods",
)
"""The collections of what runs in a namespace: owners before what they own."""
_PLURALS = {"Pod": "pods", "SharePod": "sharepods"}
"""The kinds of which tests create most, without a process of kubectl for each."""


def container(command: Sequence[str], **more: Any) -> Raw:
    """A container of KubeShare's own image, which has the programs that tests need."""
    return {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        **more,
    }


def claim_manifest(name: str, pod: Raw) -> Raw:
    """A ResourceClaim on our driver for a pod, as only a scheduler may create one."""
    exactly = {"deviceClassName": DRA_DRIVER}
    named = {key: pod["metadata"][key] for key in ("name", "uid")}
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True, **named}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


class Space:
    """A namespace.

    Args:
        stage: the lab.
        name: of the namespace, which exists.
        creator: the user that creates objects, and deletes all; by default the administrator.
    """

    def __init__(self, stage: Stage, name: str, creator: str = "") -> None:
        self.stage = stage
        self.name = name
        self._creator = creator

    @property
    def _headers(self) -> list[tuple[str, str]]:
        return [("Impersonate-User", self._creator)] if self._creator else []

    # Applying

    def create(self, manifest: Raw) -> None:
        """Create an object in the namespace.

        Raises:
            LabError: the API server refuses it.
        """
        plural = _PLURALS.get(manifest["kind"])
        if plural is not None:
            version = manifest["apiVersion"]
            root = "apis" if "/" in version else "api"
            path = f"/{root}/{version}/namespaces/{self.name}/{plural}?fieldValidation=Strict"
            self.stage.lab.api.requests.send("POST", path, manifest, headers=self._headers)
            return
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace, as who creates its objects; returns what it prints.

        Raises:
            LabError: it fails, with the words of kubectl.
        """
        creator = [f"--as={self._creator}"] if self._creator else []
        return self.stage.kubectl(*arguments, "-n", self.name, *creator, stdin=stdin)

    def share(
        self,
        name: str,
        gpu: Raw,
        command: Sequence[str] = BURN,
        *,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Apply a SharePod.

        Args:
            name: of it and its pod.
            gpu: its ``spec.gpu``; empty where ``annotations`` say it.
            command: of its one container.
            annotations: its own.
            spec: more of its PodSpec.
        """
        asked = {"gpu": gpu} if gpu else {}
        self.create(
            {
                "apiVersion": "kubeshare.nthu/v1",
                "kind": "SharePod",
                "metadata": {"name": name, "annotations": annotations or {}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container(command)],
                    **asked,
                    **spec,
                },
            }
        )

    def pod(
        self, name: str, resources: dict[str, str], command: Sequence[str], **spec: Any
    ) -> None:
        """Create a pod that knows nothing of SharePods."""
        only = container(command, resources={"limits": resources})
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [only], **spec},
            }
        )

    def plain(self, name: str, request: str, command: Sequence[str] = REST, **more: Any) -> None:
        """Create a pod that asks for a share itself.

        Args:
            name: of it.
            request: the part of a GPU.
            command: of its one container.
            more: ``annotations`` and ``labels`` of its own; all else is of its PodSpec.
        """
        asked = {"kubeshare.nthu/request": request, **more.pop("annotations", {})}
        metadata = {"name": name, "annotations": asked, "labels": more.pop("labels", {})}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container(command)], **more}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def delete_sharepods(self, labels: str = "") -> None:
        """Delete all SharePods, or those with these labels, in one request, and do not wait."""
        path = f"/apis/{GROUP}/v1/namespaces/{self.name}/sharepods?labelSelector={quote(labels)}"
        # The answer has all of them, of which the metadata is enough.
        accept = ("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        self.stage.lab.api.requests.send("DELETE", path, headers=[*self._headers, accept])

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and do not wait."""
        self.stage.kubectl("delete", kind, "-n", self.name, name, "--wait=false")

    # Looking

    def sharepods(self) -> list[Raw]:
        """The SharePods of this namespace."""
        return self.stage.items(f"/apis/kubeshare.nthu/v1/namespaces/{self.name}/sharepods")

    def sharepod(self, name: str) -> Raw | None:
        """A SharePod, or None."""
        return next((one for one in self.sharepods() if one["metadata"]["name"] == name), None)

    def status(self, name: str) -> Raw:
        """The status of a SharePod."""
        found: Raw = (self.sharepod(name) or {}).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Raw:
        """A condition of a SharePod; empty while it has none."""
        conditions = self.status(name).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def find_pod(self, name: str) -> Raw | None:
        """A pod, or None."""
        return self.stage.find(f"/api/v1/namespaces/{self.name}/pods", name)

    def pods(self, **labels: str) -> list[Raw]:
        """The pods with these labels."""
        return [
            pod
            for pod in self.stage.items(f"/api/v1/namespaces/{self.name}/pods")
            if labels.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def parts(self, **labels: str) -> dict[str, list[Raw]]:
        """GPUID → the parts that pods with these labels hold of it."""
        uids = {pod["metadata"]["uid"] for pod in self.pods(**labels)}
        found: dict[str, list[Raw]] = {}
        for vgpu in self.stage.vgpus():
            for holder in vgpu["status"].get("holders", []):
                if holder.get("podUid") in uids:
                    found.setdefault(vgpu["metadata"]["name"], []).append(holder)
        return found

    def phase(self, name: str) -> str:
        """The phase of a pod; empty where there is none."""
        return str((self.find_pod(name) or {}).get("status", {}).get("phase", ""))

    def lives(self, name: str) -> tuple[str, int]:
        """Which pod it is (uid), and how often its container was started again."""
        pod = self.find_pod(name)
        assert pod is not None, f"pod {name} is gone"
        (only,) = pod["status"]["containerStatuses"]
        return pod["metadata"]["uid"], only["restartCount"]

    def events(self, name: str) -> list[Raw]:
        """The events about the objects of a name."""
        events = self.stage.items(f"/api/v1/namespaces/{self.name}/events")
        return [one for one in events if one["involvedObject"]["name"] == name]

    def log(self, name: str) -> str:
        """What a pod has printed."""
        return self.stage.kubectl("logs", "-n", self.name, name)

    def run(self, name: str, *command: str) -> str:
        """Run a command in a pod's container and return what it prints."""
        return self.stage.kubectl("exec", "-n", self.name, name, "--", *command)

    def end_with(self, name: str, file: str) -> None:
        """Make the file for which a pod's container waits to end, maybe before the command does."""
        with suppress(LabError):
            self.run(name, "touch", file)

    def describe(self, name: str) -> str:
        """All that Kubernetes says about a SharePod and its pod."""
        words = [
            self.stage.kubectl("describe", kind, "-n", self.name, name)
            for kind, there in (("sharepod", self.sharepod(name)), ("pod", self.find_pod(name)))
            if there is not None
        ]
        return "\n".join([*words, self.stage.describe_system()])

    # Waiting

    def ready(self, name: str, *, seconds: float = DEADLINE) -> Place:
        """Wait until a SharePod is ready, and say where it is."""

        def look() -> Place | None:
            if self.condition(name, "Ready").get("status") != "True":
                return None
            status = self.status(name)
            (gpu,) = status["gpus"]
            return Place(status["nodeName"], gpu["id"], gpu["uuid"])

        return eventually(
            look,
            f"SharePod {name} to be ready",
            seconds=seconds,
            explain=lambda: self.describe(name),
        )

    def until_running(self, count: int, **labels: str) -> set[str]:
        """Wait until just so many pods with these labels run; returns their uids."""

        def look() -> set[str]:
            found = [pod for pod in self.pods(**labels) if pod["status"]["phase"] == "Running"]
            return {pod["metadata"]["uid"] for pod in found} if len(found) == count else set()

        return eventually(
            look,
            f"{count} pods to run",
            explain=lambda: self.stage.kubectl("describe", "pods", "-n", self.name),
        )

    def until_phase(self, name: str, *phases: str) -> None:
        """Wait until a pod is in one of these phases."""
        eventually(
            lambda: self.phase(name) in phases,
            f"pod {name} to be {' or '.join(phases)}",
            explain=lambda: self.describe(name),
        )

    def waits(self, name: str, reason: str, kind: str = "Scheduled") -> str:
        """Wait until a condition of a SharePod is false for a reason, and return its message."""

        def look() -> str:
            condition = self.condition(name, kind)
            found = (condition.get("status"), condition.get("reason")) == ("False", reason)
            return str(condition["message"]) if found else ""

        return eventually(
            look, f"SharePod {name} to wait ({reason})", explain=lambda: self.describe(name)
        )

    def pod_waits(self, name: str, reason: str) -> str:
        """Wait until a plain pod is not placed for a reason, and return its message."""

        def look() -> str:
            conditions = (self.find_pod(name) or {}).get("status", {}).get("conditions", [])
            found = [one for one in conditions if one["type"] == CONDITION_POD_SCHEDULED]
            said = [one["message"] for one in found if one["reason"] == reason]
            return str(said[0]) if said else ""

        return eventually(
            look, f"pod {name} to wait ({reason})", explain=lambda: self.describe(name)
        )

    def event(self, name: str, reason: str) -> str:
        """Wait for an event about an object, and return its message."""

        def look() -> str:
            messages = (one["message"] for one in self.events(name) if one["reason"] == reason)
            return str(next(messages, ""))

        return eventually(
            look, f"an event {reason} about {name}", explain=lambda: str(self.events(name))
        )

    def clear(self) -> None:
        """Delete the namespace and what runs in it; wait until every GPU is given back.

        A SharePod that outlives its pod for a moment is given another part: it has to go first.
        """
        api, within = self.stage.lab.api, f"namespaces/{self.name}"
        api.send("DELETE", f"/api/v1/{within}")
        # Its own controller begins after 5 s, and looks again after 8 s more where one is left.
        options = {"gracePeriodSeconds": 1, "propagationPolicy": "Background"}
        for collection in _RUNNING:
            api.send("DELETE", "/" + collection.format(within), options)
        sharepods = f"/apis/{GROUP}/v1/namespaces/{self.name}/sharepods"
        eventually(
            lambda: not self.stage.items(sharepods),
            f"the SharePods of {self.name} to go",
            explain=lambda: self.stage.kubectl("describe", "shp", "-n", self.name),
        )
        eventually(
            lambda: not self.stage.items(f"/api/v1/namespaces/{self.name}/pods"),
            f"the pods of {self.name} to go",
            explain=lambda: self.stage.kubectl("describe", "pods", "-n", self.name),
        )
        eventually(
            self._all_given_back,
            "all vGPUs to be given back",
            explain=lambda: self.stage.kubectl("get", "vgpus,pods", "-A", "-o", "yaml"),
        )

    def _all_given_back(self) -> bool:
        """No vGPU is held from this namespace, or by nobody; and none is gone but for its pod.

        The vGPUs of a node whose GPUs KubeShare owns stay without holders.
        """
        vgpus = self.stage.vgpus()
        held = [vgpu["status"].get("holders", []) for vgpu in vgpus]
        ours = [one for holders in held for one in holders if self._is_ours(one)]
        idle = [
            vgpu
            for vgpu, holders in zip(vgpus, held, strict=True)
            if not holders and vgpu["spec"]["pool"] != POOL_STATIC
        ]
        kept = {placeholder_name(vgpu["metadata"]["name"]) for vgpu in vgpus}
        return not ours and not idle and set(self.stage.placeholders()) <= kept

    def _is_ours(self, holder: Raw) -> bool:
        return bool(holder["namespace"] == self.name)
