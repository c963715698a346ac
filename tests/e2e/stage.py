"""The lab with KubeShare on it: what it has, what its GPUs do, and how its programs are killed."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from msgspec import Struct

from kubeshare import fakegpu
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.demo.meter import FakeGpuLog
from kubeshare.demo.timeline import shares
from kubeshare.lab.cluster import Lab
from kubeshare.lab.errors import LabError
from kubeshare.lab.node import cgroups
from kubeshare.lab.node.node import Node
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

Found = TypeVar("Found")
Raw = dict[str, Any]

SCHEDULER, DEVICE_MANAGER = "scheduler", "device-manager"
NODE_AGENT, TOKEN_DAEMON = "node-agent", "token-daemon"
PROGRAMS = {NODE_AGENT: "kubeshare.node", TOKEN_DAEMON: "kubeshare.tokens"}
"""The component's module, by which its process is known on a node."""

DEADLINE = 180.0
"""For what takes seconds where nothing else runs: only a test that fails waits so long."""
_POLL_SECONDS = 0.1
_SETTLED = 0.05
_WINDOW_NS = 6_000_000_000


class Place(Struct, frozen=True):
    """Where a SharePod runs."""

    node: str
    gpuid: str
    uuid: str


def eventually(
    look: Callable[[], Found | None],
    what: str,
    *,
    seconds: float = DEADLINE,
    explain: Callable[[], str] = str,
) -> Found:
    """Look until there is something to see, and return it.

    Args:
        look: returns something false until it has happened.
        what: for the failure, as in "waited for ...".
        seconds: the deadline.
        explain: what to say besides, when it has not happened.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}\n{explain()}"
        time.sleep(_POLL_SECONDS)
    return found


class Stage:
    """A lab with KubeShare on it.

    Args:
        lab: booted, with KubeShare installed.

    Attributes:
        logs: pod of KubeShare -> what it logged, as far as it was kept.
        restarts: pod of KubeShare -> how often its containers were restarted when last seen.
        caused: pod of KubeShare -> how many of these restarts a test caused.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kubectl = lab.kubectl
        self.logs: dict[str, str] = {}
        self.restarts: dict[str, int] = {}
        self.caused: Counter[str] = Counter()
        self._heartbeats = 0

    # What there is

    def items(self, path: str) -> list[Raw]:
        """The objects under a path of the API."""
        found: list[Raw] = self.lab.api.get(path)["items"]
        return found

    def find(self, path: str, name: str) -> Raw | None:
        """One of them by its name, or None."""
        return next((one for one in self.items(path) if one["metadata"]["name"] == name), None)

    def vgpus(self) -> list[Raw]:
        """All vGPUs."""
        return self.items("/apis/kubeshare.nthu/v1/vgpus")

    def vgpu(self, gpuid: str) -> Raw | None:
        """One vGPU, or None."""
        return self.find("/apis/kubeshare.nthu/v1/vgpus", gpuid)

    def gpunode(self, node: str) -> Raw:
        """The GPUNode of a node."""
        found: Raw = self.lab.api.get(f"/apis/kubeshare.nthu/v1/gpunodes/{node}")
        return found

    def holders(self, gpuid: str) -> dict[str, Raw]:
        """Who holds a part of a vGPU, by the SharePod's name; nobody where it is gone."""
        vgpu = self.vgpu(gpuid) or {}
        found: list[Raw] = vgpu.get("status", {}).get("holders", [])
        return {holder["name"]: holder for holder in found}

    def placeholders(self) -> list[str]:
        """The names of the pods that keep GPUs."""
        pods = self.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
        names = [pod["metadata"]["name"] for pod in pods]
        return [name for name in names if name.startswith("kubeshare-vgpu-")]

    def configure(self, **said: Any) -> None:
        """Write the configuration; without anything, the defaults are in force."""
        patch = json.dumps({"data": {"config.yaml": yaml.safe_dump(said)}})
        which = ("configmap", "kubeshare", "-n", NAMESPACE)
        self.kubectl("patch", *which, "--type=merge", "-p", patch)

    def node(self, name: str) -> Node:
        """A node of the lab."""
        return next(node for node in self.lab.nodes if node.name == name)

    # What the GPUs do

    def processes(self, host: str) -> list[fakegpu.GpuProcess]:
        """What the GPUs' logs have of a pod's processes that live, on every node."""
        return [
            process
            for node in self.lab.nodes
            for gpu in fakegpu.stat(node.state_folder).gpus
            for process in gpu.processes
            if process.host == host and process.alive
        ]

    def meter(self, place: Place, pods: Iterable[str]) -> FakeGpuLog:
        """The log of one GPU, for some pods."""
        return FakeGpuLog(self.node(place.node).state_folder, place.uuid, pods)

    def works_for(self, place: Place, *pods: str) -> None:
        """Wait until the GPU has worked for each of these pods, from now on."""
        meter = self.meter(place, pods)
        before = meter.sample().busy_ns

        def all_more() -> bool:
            now = meter.sample().busy_ns
            return all(now[pod] > before[pod] for pod in pods)

        eventually(all_more, f"the GPU to work for {', '.join(pods)}")

    def shares(self, place: Place, targets: Mapping[str, float]) -> dict[str, float]:
        """The shares of pods over six seconds by the GPU's own log, once they have settled."""
        self.settle(place, targets)
        meter = self.meter(place, targets)
        first = meter.sample()
        last = eventually(
            lambda: seen if (seen := meter.sample()).at_ns >= first.at_ns + _WINDOW_NS else None,
            "the window to end",
        )
        return shares(first, last, targets)

    def settle(self, place: Place, targets: Mapping[str, float]) -> None:
        """Wait until the daemon's average of late is near what each pod should have."""

        def near() -> bool:
            now = self.top(place)
            return all(
                pod in now and abs(float(now[pod]["share"]) - target) < _SETTLED
                for pod, target in targets.items()
            )

        eventually(near, f"shares near {targets}", explain=lambda: str(self.top(place)))

    def top(self, place: Place) -> dict[str, Raw]:
        """What the token daemon reports of each holder of a GPU, by the pod's name."""
        run = self.node(place.node).machine.path("/run/kubeshare")
        try:
            claims: list[Raw] = ask_snapshot(Paths(run))["claims"]
        except DaemonMissingError:
            return {}
        mine = [one for one in claims if one["gpu"] == place.uuid]
        return {one["holder"].rpartition("/")[2]: one for one in mine}

    # Its programs, and their ends

    def system_pods(self, component: str, node: str = "") -> list[Raw]:
        """The pods of one of KubeShare's programs, of one node or of all, that are to stay."""
        return [
            pod for pod in self._pods_of(component) if node in ("", pod["spec"].get("nodeName"))
        ]

    def _pods_of(self, *components: str) -> list[Raw]:
        label = "app.kubernetes.io/component"
        return [
            pod
            for pod in self.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
            if pod["metadata"].get("labels", {}).get(label) in components
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def delete_pod(self, component: str, node: str = "") -> None:
        """Take a program's pod away by force, of several the one that leads; another comes."""
        names = [pod["metadata"]["name"] for pod in self.system_pods(component, node)]
        name = names[0] if len(names) == 1 else self._until_one_leads(component, names)
        self.keep_log(name)
        self.kubectl("delete", "pod", "-n", NAMESPACE, name, "--force", "--grace-period=0")

    def replace_leader(self, component: str) -> None:
        """End the program that leads, politely, and wait until another one leads."""
        name = self._until_one_leads(
            component, [pod["metadata"]["name"] for pod in self.system_pods(component)]
        )
        self.keep_log(name)
        self.kubectl("delete", "pod", "-n", NAMESPACE, name, "--wait=false")
        eventually(lambda: self.leader(component) not in ("", name), f"another {component} to lead")

    def _until_one_leads(self, component: str, names: Collection[str]) -> str:
        """Who leads, of these; one that has gone leads until its lease has ended."""
        return eventually(
            lambda: name if (name := self.leader(component)) in names else None,
            f"one of {', '.join(names)} to lead",
        )

    def leader(self, component: str) -> str:
        """The name of the pod that works, of a program with several."""
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kubeshare-{component}"
        return str(self.lab.api.get(lease)["spec"]["holderIdentity"])

    def heartbeat(self) -> None:
        """One write to etcd, as the renewal of a Lease is.

        Raises:
            LabError: the API server did not take it.
        """
        self._heartbeats += 1
        path = "/api/v1/namespaces/default/configmaps"
        name, count = "heartbeat", {"count": str(self._heartbeats)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": count}
        try:
            self.lab.api.send("PUT", f"{path}/{name}", body)
        except LabError:
            self.lab.api.send("POST", path, body)

    def kill_process(self, component: str, node: str) -> None:
        """Kill a program of a node with SIGKILL; the kubelet starts another."""
        (pod,) = self.system_pods(component, node)
        self.keep_log(pod["metadata"]["name"])
        (pid,) = self.pids(component, node)
        self.caused[pod["metadata"]["name"]] += 1
        os.kill(pid, signal.SIGKILL)

    def reboot(self, node: str) -> None:
        """Reboot a node; every container of its pods is restarted."""
        for pod in self._own_pods():
            if pod["spec"].get("nodeName") == node:
                self.keep_log(pod["metadata"]["name"])
                self.caused[pod["metadata"]["name"]] += len(pod["spec"]["containers"])
        self.lab.reboot(node)

    def pids(self, component: str, node: str) -> list[int]:
        """The processes of a program of a node."""
        group = self.node(node).layout.cgroup
        return [pid for pid in cgroups.members(group) if _runs(pid, PROGRAMS[component])]

    def containers(self, component: str, node: str = "") -> set[str]:
        """The containers in which a program runs or ran last, as the kubelets have reported."""
        return {
            status["containerID"]
            for pod in self.system_pods(component, node)
            for status in pod["status"].get("containerStatuses", [])
            if "containerID" in status
        }

    def until_ready(
        self, component: str, node: str = "", *, but: Collection[str] = frozenset()
    ) -> None:
        """Wait until a program's pods are ready, with containers other than ``but``.

        A pod whose process was killed is reported as ready until its kubelet has noticed.
        """

        def ready() -> bool:
            pods = self.system_pods(component, node)
            now = self.containers(component, node)
            return bool(now) and now.isdisjoint(but) and all(_is_ready(pod) for pod in pods)

        eventually(ready, f"{component} to be ready again", explain=self.describe_system)

    def describe_system(self) -> str:
        """How KubeShare's own pods are."""
        return self.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide")

    def keep_log(self, name: str) -> None:
        """Keep what a pod of KubeShare has logged so far, also before its last restart."""
        pod = self.find(f"/api/v1/namespaces/{NAMESPACE}/pods", name)
        if pod is None:
            return
        logged = ""
        for status in pod["status"].get("containerStatuses", []):
            of = ("logs", "-n", NAMESPACE, name, "-c", status["name"])
            if status["restartCount"]:
                logged += self._log_before_restart(*of)
            (text,) = eventually(partial(self._read, *of), f"the log of {name}")
            logged += text
        self.logs[name] = self.logs.get(name, "") + logged
        self.restarts[name] = _restarts(pod)

    def restarts_now(self) -> dict[str, int]:
        """How often the containers of each pod of KubeShare were restarted."""
        return {pod["metadata"]["name"]: _restarts(pod) for pod in self._own_pods()}

    def last_end(self, name: str) -> str:
        """How the containers of a pod of KubeShare last ended, as its kubelet says."""
        pod = self.find(f"/api/v1/namespaces/{NAMESPACE}/pods", name) or {"status": {}}
        ends = (one.get("lastState") for one in pod["status"].get("containerStatuses", []))
        return json.dumps([end for end in ends if end])

    def logs_before_restart(self, name: str) -> str:
        """What the containers of a pod of KubeShare logged before their last restart."""
        pod = self.find(f"/api/v1/namespaces/{NAMESPACE}/pods", name) or {"status": {}}
        return "".join(
            self._log_before_restart("logs", "-n", NAMESPACE, name, "-c", status["name"])
            for status in pod["status"].get("containerStatuses", [])
            if status["restartCount"]
        )

    def _read(self, *of: str) -> tuple[str, ...]:
        """A log; nothing from a kubelet that has just started and does not know its pods."""
        try:
            return (self.kubectl(*of),)
        except LabError:
            return ()

    def _log_before_restart(self, *of: str) -> str:
        try:
            return self.kubectl(*of, "--previous")
        except LabError:  # a node that was rebooted has lost it
            return ""

    def keep_logs(self) -> None:
        """Keep what all pods of KubeShare have logged so far."""
        for pod in self._own_pods():
            self.keep_log(pod["metadata"]["name"])

    def _own_pods(self) -> list[Raw]:
        return self._pods_of(DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON)


def _restarts(pod: Raw) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))


def _runs(pid: int, module: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"-m" in words and module.encode() in words


def _is_ready(pod: Raw) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
