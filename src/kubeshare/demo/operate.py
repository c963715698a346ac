"""Plays an administrator's day: install, look, account, upgrade and uninstall with Helm."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kubeshare.demo.cluster import SYSTEM_NAMESPACE, Cluster, DemoError
from kubeshare.demo.figure import Job
from kubeshare.install.manifests import manifest_folder

NAMESPACE: Final = "operate"
RELEASE: Final = "kubeshare"
JOBS: Final = (Job("a", "0.5", "1"), Job("b", "0.3", "1"), Job("done", "0.2", "1"))
_SHORT: Final = JOBS[-1]
"""It ends by itself, so that its account is complete."""
_METRICS: Final = "/api/v1/namespaces/{namespace}/pods/{pod}/proxy/metrics"
_NAME_AND_PORT: Final = "{.metadata.name}:{.spec.containers[0].ports[0].containerPort}"
_UTILIZATION: Final = re.compile(
    r"^kubeshare_node_gpu_utilization_ratio\{.*\} (\S+)$", re.MULTILINE
)


class Helm:
    """The lab's Helm on the demo's cluster.

    Args:
        program: the file.
        kubeconfig: of the cluster.
        console: where to show each command.
    """

    def __init__(self, program: Path, kubeconfig: Path, console: Console) -> None:
        self._program = program
        self._kubeconfig = kubeconfig
        self._console = console

    def __call__(self, *arguments: str) -> tuple[bool, str]:
        """Run it on the release's namespace; returns whether it succeeded, and what it printed."""
        self._console.print(f"\n$ helm {' '.join(arguments)}", soft_wrap=True, highlight=False)
        options = ["--namespace", SYSTEM_NAMESPACE, "--kubeconfig", str(self._kubeconfig)]
        done = subprocess.run(  # noqa: S603 - our own arguments
            [str(self._program), *arguments, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode == 0, (done.stdout + done.stderr).strip()


def read_page(command: Sequence[str], console: Console) -> Mapping[str, Any]:
    """Start the page of a cluster, read what its tables show, and stop it.

    Args:
        command: that starts it.
        console: where to show the address.

    Raises:
        DemoError: it does not start.
    """
    console.print("\n$ kubeshare web", highlight=False)
    with subprocess.Popen(  # noqa: S603 - our own arguments
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as page:
        try:
            line = page.stdout.readline() if page.stdout else ""
            found = re.search(r"(http://\S+)/#token=(\S+)", line)
            if found is None:
                raise DemoError("kubeshare web does not say where its page is")
            address, token = found.groups()
            console.print(f"{address}/#token=…", highlight=False)
            headers = {"Authorization": f"Bearer {token}"}
            request = urllib.request.Request(f"{address}/api/tables", headers=headers)  # noqa: S310
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
                tables: Mapping[str, Any] = json.load(answer)["tables"]
                return tables
        finally:
            page.terminate()


class OperateDemo:
    """Plays on a lab without KubeShare.

    Args:
        cluster: with the namespace of the demo.
        helm: runs Helm; returns whether it succeeded, and what it printed.
        kubeshare: returns what a `kubeshare` command prints.
        page: returns the tables of the page of the cluster.
        gpus: how many GPUs the cluster has.
        image: of all programs and pods, ``NAME:TAG``.
        console: where to show what happens.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        cluster: Cluster,
        helm: Callable[..., tuple[bool, str]],
        kubeshare: Callable[..., str],
        *,
        page: Callable[[], Mapping[str, Any]],
        gpus: int,
        image: str,
        console: Console,
    ) -> None:
        self._cluster = cluster
        self._helm = helm
        self._kubeshare = kubeshare
        self._page = page
        self._gpus = gpus
        self._image = image
        self._console = console

    def run(self) -> None:
        """Install, share, look, account, upgrade, uninstall.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._install()
        self._share()
        self._look()
        self._account()
        before = self._lives()
        self._upgrade()
        self._refuse_to_uninstall()
        if self._lives() != before:
            raise DemoError("containers of pods were started again")
        self._console.print("a and b run on, in the containers in which they were started")
        self._uninstall()

    def _install(self) -> None:
        name, _, tag = self._image.rpartition(":")
        values = ("--set", f"image.repository={name},image.tag={tag}")
        self._must("install", RELEASE, str(_chart()), "--create-namespace", "--wait", *values)
        self._cluster.wait(
            lambda: self._cluster.gpu_count() == self._gpus, f"{self._gpus} GPUs to be found"
        )
        self._must("test", RELEASE)
        self._console.print(f"{self._gpus} GPUs found; `helm test` finds nothing wrong")

    def _share(self) -> None:
        self._cluster.start_afresh()
        for job in JOBS:
            self._cluster.create(_manifest(job, self._image))
        for job in JOBS[:-1]:
            self._cluster.place_of(job.name)
        self._show("kubectl", "get", "shp", "-n", NAMESPACE, "-o", "wide")

    def _look(self) -> None:
        """Show the numbers of the dashboard that figure 9 of the paper has, and the page."""
        busy = self._cluster.wait(self._utilizations, "the metrics to show a GPU that works")
        mean = sum(busy) / len(busy)
        self._console.print(
            f"metrics: {len(busy)} active GPU, mean NVML utilization {mean:.0%} "
            "(the dashboard's panels, docs/monitoring.md)"
        )
        rows = {row["name"]: row for row in self._page()["pods"] if row["namespace"] == NAMESPACE}
        for job in JOBS[:-1]:
            if job.name not in rows:
                raise DemoError(f"the page does not show pod {job.name}")
        self._console.print(
            f"the page shows {', '.join(sorted(rows))}, each with a page of its own"
        )

    def _utilizations(self) -> list[float]:
        """Of the GPUs that run kernels, as the node agents serve them."""
        label = "app.kubernetes.io/component=node-agent"
        each = f"jsonpath={{range .items[*]}}{_NAME_AND_PORT} {{end}}"
        pods = self._cluster.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", label, "-o", each)
        paths = [_METRICS.format(namespace=SYSTEM_NAMESPACE, pod=pod) for pod in pods.split()]
        texts = [self._cluster.kubectl("get", "--raw", path) for path in paths]
        values = [float(value) for text in texts for value in _UTILIZATION.findall(text)]
        return [value for value in values if value > 0]

    def _account(self) -> None:
        """Wait for the account of the job that ends, and show who used what."""
        told: Mapping[str, Any] = self._cluster.wait(self._usage, f"the account of {_SHORT.name}")
        used = sum(row["usedGpuSeconds"] for row in told["rows"] if row["pod"] == _SHORT.name)
        if used <= 0:
            raise DemoError(f"{_SHORT.name} has worked, and its account says {used} GPU seconds")
        self._show("kubeshare", "usage", "--by", "pod", "-n", NAMESPACE)

    def _usage(self) -> Mapping[str, Any] | None:
        told = json.loads(self._kubeshare("usage", "--by", "pod", "-n", NAMESPACE, "-o", "json"))
        there = any(row["pod"] == _SHORT.name for row in told["rows"])
        return told if there else None

    def _upgrade(self) -> None:
        value = "scheduler.resources.limits.memory=2Gi"
        self._must("upgrade", RELEASE, str(_chart()), "--reuse-values", "--wait", "--set", value)
        template = "{.spec.template.spec.containers[0].resources.limits.memory}"
        limit = self._cluster.kubectl(
            *("get", "deployment", "kubeshare-scheduler", "-n", SYSTEM_NAMESPACE),
            *("-o", f"jsonpath={template}"),
        )
        self._console.print(f"the scheduler may use {limit} now")

    def _refuse_to_uninstall(self) -> None:
        """See that a release whose shares are in use stays, and says why."""
        done, said = self._helm("uninstall", RELEASE)
        if done:
            raise DemoError("helm uninstall took the programs away from pods that share a GPU")
        self._console.print(said.splitlines()[-1], soft_wrap=True, style="dim")
        phases = self._cluster.phases()
        running = [job.name for job in JOBS[:-1] if phases.get(job.name) == "Running"]
        if len(running) != len(JOBS) - 1:
            raise DemoError(f"of a and b, only {running} run on")

    def _uninstall(self) -> None:
        self._cluster.delete("pod", *(job.name for job in JOBS[:-1]))
        self._console.print("a and b are deleted: nobody shares a GPU any more")
        self._must("uninstall", RELEASE, "--wait")
        self._console.print("KubeShare is gone; every GPU is Kubernetes' own again")

    def _must(self, *arguments: str) -> None:
        done, said = self._helm(*arguments)
        if not done:
            # Helm quotes what a hook said.
            words = said.replace("\\n", "\n")
            raise DemoError(f"helm {arguments[0]} failed:\n{words}")

    def _show(self, program: str, *arguments: str) -> None:
        run = self._cluster.kubectl if program == "kubectl" else self._kubeshare
        self._console.print(f"\n$ {program} {' '.join(arguments)}", highlight=False)
        self._console.print(run(*arguments), highlight=False, soft_wrap=True)

    def _lives(self) -> Sequence[str]:
        """The containers of the pods that run."""
        pods = [self._cluster.get("pod", job.name) for job in JOBS[:-1]]
        return [one["containerID"] for pod in pods for one in pod["status"]["containerStatuses"]]


def _chart() -> Path:
    return manifest_folder().parent


def _manifest(job: Job, image: str) -> dict[str, object]:
    manifest: dict[str, Any] = job.manifest(NAMESPACE, image)
    if job is _SHORT:
        manifest["spec"]["restartPolicy"] = "Never"
        manifest["spec"]["containers"][0]["command"][-1] = "8"
    return manifest
