"""An API server with KubeShare installed, a kube-scheduler, and our programs as processes."""

import asyncio
import os
import re
import ssl
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import yaml
from msgspec import Struct

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab import configuration, processes
from kubeshare.lab.control_plane import audit
from kubeshare.lab.control_plane.api_server import (
    ADMIN,
    ApiServer,
    local_api_server,
    wait_until,
)
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.lab.control_plane.ports import reserve_ports

NOT_INSTALLED = {"Deployment", "DaemonSet"}
SCHEDULER, DEVICES = "kubeshare-scheduler", "kubeshare-device-manager"
EXTENDER = "kubeshare-extender"
MODULES = {
    SCHEDULER: ("kubeshare.scheduler",),
    DEVICES: ("kubeshare.device_manager", "--placeholder-image", "none"),
    EXTENDER: ("kubeshare.extender",),
}
_STOCK = {"etcd", "kube-apiserver", "kube-scheduler"}
_LOOK_SECONDS = 1.0
"""Seconds between two looks whether our programs run."""
_LAST_LINES = 15
_TICKS = os.sysconf("SC_CLK_TCK")
_WRITES = re.compile(
    r'^apiserver_request_total\{[^}]*verb="(?:POST|PUT|PATCH|APPLY|DELETE)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


class Usage(Struct, frozen=True):
    """What a program has used so far: CPU in seconds, memory now and at most in MiB."""

    cpu: float
    resident: float
    peak: float


class Cluster:
    """The running programs.

    Args:
        server: the API server.
        running: our programs' processes by the name of their account.

    Attributes:
        extender_port: on which the extender serves, once it is started.
    """

    extender_port: int

    def __init__(self, server: ApiServer, running: dict[str, processes.Process]) -> None:
        self.server = server
        self._running = running
        self._stock = _kube_scheduler(server)

    def schedule_with(self, extender: Mapping[str, object]) -> None:
        """Start kube-scheduler again, with an extender in its configuration."""
        self.stop_scheduler()
        self._stock = _kube_scheduler(self.server, extender)

    def stop_scheduler(self) -> None:
        """Stop kube-scheduler."""
        processes.stop([self._stock], gently=False)

    def usage(self) -> dict[str, Usage]:
        """Of our programs, by name.

        Raises:
            RuntimeError: one has ended.
        """
        check_running(self._running, self.log)
        return {name: _usage(one.pid) for name, one in self._running.items()}

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU so far of all programs of the control plane, by name.

        Raises:
            RuntimeError: one of ours has ended.
        """
        check_running(self._running, self.log)
        pids = {name: one.pid for name, one in self._running.items()} | _stock_programs()
        return {name: _usage(pid).cpu for name, pid in pids.items()}

    def asked(self) -> dict[str, Counter[tuple[str, str, str]]]:
        """Program -> how often it asked for (verb, resource[/subresource], namespace) so far."""
        found: dict[str, Counter[tuple[str, str, str]]] = {name: Counter() for name in MODULES}
        for request in audit.read(self.server.settings.folder):
            target = request.target
            # The end of a watch is recorded like its beginning.
            ended = request.verb == "watch" and request.stage == "ResponseComplete"
            if target is None or ended or request.account not in found:
                continue
            resource = "/".join(part for part in (target.resource, target.subresource) if part)
            found[request.account][request.verb, resource, target.namespace] += 1
        return found

    def writes(self) -> int:
        """How many writes of anybody the API server has served."""
        admin = self.server.authority.identity("admin", *ADMIN)
        context = ssl.create_default_context(cafile=str(self.server.authority.certificate))
        context.load_cert_chain(admin.certificate, admin.key)
        url = f"{self.server.settings.url}/metrics"
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            text = answer.read().decode()
        return int(sum(float(count) for count in _WRITES.findall(text)))

    def start(self, *names: str) -> None:
        """Start programs of ours; each is ready when it knows the cluster."""
        for name in names:
            port, service = reserve_ports(2)
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
            account = f"system:serviceaccount:{NAMESPACE}:{name}"
            kubeconfig = self.server.kubeconfig_for(account, groups)
            module, *options = MODULES[name]
            argv = [sys.executable, "-m", module, "--kubeconfig", str(kubeconfig)]
            log = self.server.settings.folder / f"{name}.log"
            argv = ["setpriv", "--pdeathsig", "KILL", *argv, *options]
            if name == EXTENDER:
                argv += ["--port", str(service), "--health-port", str(port)]
                self.extender_port = service
            else:
                argv += ["--port", str(port)]
            # The name of a replica, which is its identity in the Lease.
            self._running[name] = processes.start(argv, log, {"POD_NAME": f"{name}-0"})
            wait_until(partial(_ready, port), f"{name} to be ready ({log})")

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event that only comes while our programs run.

        Raises:
            TimeoutError: it has not come in time.
            RuntimeError: a program has ended.
        """
        async with asyncio.timeout(seconds):
            while not event.is_set():
                check_running(self._running, self.log)
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), _LOOK_SECONDS)

    def log(self, name: str) -> Path:
        """Where a program has written."""
        return self.server.settings.folder / f"{name}.log"


def check_running(running: Mapping[str, processes.Process], log: Callable[[str], Path]) -> None:
    """Check that programs run, by name.

    Raises:
        RuntimeError: one has ended; with the last lines of its log.
    """
    for name, process in running.items():
        if not processes.alive(process):
            lines = processes.tail(log(name), _LAST_LINES)
            raise RuntimeError(f"{name} has ended, so nothing is measured; it wrote last:\n{lines}")


@contextmanager
def cluster(*, extender: bool = False) -> Iterator[Cluster]:
    """An API server with our kinds, policies and roles, and a kube-scheduler; gone at the end.

    Args:
        extender: whether to install what the extender needs.
    """
    with local_api_server() as server:
        ours = manifests.load(manifests.Options(extender=extender))
        wanted = [manifest for manifest in ours if manifest["kind"] not in NOT_INSTALLED]
        server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        running: dict[str, processes.Process] = {}
        made = Cluster(server, running)
        try:
            yield made
        finally:
            made.stop_scheduler()
            processes.stop(running.values(), gently=False)


def _kube_scheduler(
    server: ApiServer, extender: Mapping[str, object] | None = None
) -> processes.Process:
    folder = server.settings.folder
    identity = server.authority.identity("kube-scheduler", "system:kube-scheduler")
    kubeconfig = write_kubeconfig(
        folder / "kube-scheduler.kubeconfig",
        "kube-scheduler",
        server.settings.url,
        server.authority.certificate,
        identity,
    )
    (port,) = reserve_ports(1)
    program, *options = configuration.scheduler_arguments(kubeconfig)
    # By itself it sends no more than 50 requests a second, and would be what is measured.
    limits = ["--kube-api-qps=5000", "--kube-api-burst=5000", f"--secure-port={port}"]
    if extender is not None:
        path = folder / "kube-scheduler.yaml"
        written = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
            "extenders": [extender],
        }
        path.write_text(yaml.safe_dump(written))
        # The file replaces options of the same meaning.
        options = [each for each in options if each.startswith(("--auth", "--bind"))]
        limits = [f"--config={path}", f"--secure-port={port}"]
    argv = ["setpriv", "--pdeathsig", "KILL", str(server.programs / program), *options, *limits]
    return processes.start(argv, folder / "kube-scheduler.log")


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _stock_programs() -> dict[str, int]:
    """Kubernetes' programs that this process has started: name -> pid."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            start, _, rest = path.read_text().rpartition(")")
            pid, _, name = start.partition(" (")
            if name in _STOCK and int(rest.split()[1]) == os.getpid():
                found[name] = int(pid)
    return found


def _usage(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = re.findall(r"^(Vm\w+):\s+(\d+) kB", status, re.MULTILINE)
    sizes = {key: int(size) / 1024 for key, size in kilobytes}
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, sizes["VmRSS"], sizes["VmHWM"])
