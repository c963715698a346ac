"""Runs etcd and the API server, which need no root.

On the loopback, in a temporary folder and without root this is enough for
schemas, admission policies, permissions and controllers: no node, no
scheduler, and no garbage collection, since that is the controller manager's::

    with local_api_server() as api:
        api.kubectl("apply", "-f", "deploy/chart/kubeshare/manifests/crds")
        client = lightkube.Client(config=KubeConfig.from_file(api.kubeconfig))

The lab starts the same two programs with the same arguments in a network namespace of its own,
and the rest after them.
"""

import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from kubeshare.lab import processes
from kubeshare.lab.control_plane import audit
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.lab.control_plane.ports import reserve_ports
from kubeshare.lab.control_plane.requests import Requests
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

ADMIN = ("lab-admin", ("system:masters",))
_READY_SECONDS = 180.0
_POLL_SECONDS = 0.05


class Settings(Struct, frozen=True, kw_only=True):
    """Addresses, ports and folders of the two programs.

    Args:
        folder: certificates, kubeconfigs, logs and etcd's data.
        address: the API server's address.
        port: its TLS port.
        etcd_port: etcd's client port on the loopback.
        etcd_peer_port: the port where it would meet other members of etcd.
        service_cidr: the range of ClusterIPs.
        service_ip: the first address of that range: the API server's own Service.
        nodes: whether there will be any. Without, pods need no ServiceAccount
            (no controller creates the default one) and the API server no endpoint.
        admission: plugins besides those that are on by default.
    """

    folder: Path
    address: str = "127.0.0.1"
    port: int
    etcd_port: int
    etcd_peer_port: int
    service_cidr: str = "10.96.0.0/16"
    service_ip: str = "10.96.0.1"
    nodes: bool = False
    admission: tuple[str, ...] = ("NodeRestriction",)

    @property
    def url(self) -> str:
        """Where clients find the API server."""
        return f"https://{self.address}:{self.port}"


def etcd_arguments(settings: Settings) -> list[str]:
    """The command line of etcd: loopback only, and no fsync, since a lab's data is disposable.

    It reports progress to the API server every five seconds, as kubeadm's does. Without that, a
    kind whose objects never change gets no bookmarks, and its watches look as if they were lost.
    """
    client = f"http://127.0.0.1:{settings.etcd_port}"
    peer = f"http://127.0.0.1:{settings.etcd_peer_port}"
    return [
        "etcd",
        f"--data-dir={settings.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--watch-progress-notify-interval=5s",
        "--log-level=warn",
    ]


def api_server_arguments(settings: Settings, authority: Authority) -> list[str]:
    """The command line of the API server; makes the certificates that it names."""
    hosts = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    addresses = (settings.address, settings.service_ip, "127.0.0.1")
    serving = authority.identity("apiserver", "kube-apiserver", hosts=hosts + addresses)
    to_kubelets = authority.identity("apiserver-kubelet", "kube-apiserver", ("system:masters",))
    accounts = authority.service_account_keys()
    arguments = [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{settings.etcd_port}",
        f"--bind-address={settings.address}",
        f"--advertise-address={settings.address}",
        f"--secure-port={settings.port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority.certificate}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={','.join(settings.admission)}",
        f"--service-cluster-ip-range={settings.service_cidr}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={accounts.certificate}",
        f"--service-account-signing-key-file={accounts.key}",
        f"--kubelet-certificate-authority={authority.certificate}",
        f"--kubelet-client-certificate={to_kubelets.certificate}",
        f"--kubelet-client-key={to_kubelets.key}",
        # Node names do not resolve in a lab.
        "--kubelet-preferred-address-types=InternalIP",
        # No kube-proxy runs here, so an APIService is reached by its endpoint, not its Service.
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
        "--profiling=false",
        *audit.arguments(settings.folder),
    ]
    if not settings.nodes:
        arguments += [
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        ]
    return arguments


def write_admin_kubeconfig(settings: Settings, authority: Authority, name: str) -> Path:
    """The administrator's ``kubeconfig`` in the settings' folder."""
    user = authority.identity("admin", *ADMIN)
    path = settings.folder / "kubeconfig"
    return write_kubeconfig(path, name, settings.url, authority.certificate, user)


def ready(settings: Settings, authority: Path) -> bool:
    """Whether the API server serves and has made the roles that RBAC starts with."""
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with urllib.request.urlopen(  # noqa: S310 - the address is ours
            f"{settings.url}/readyz", timeout=2, context=context
        ) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    still_possible: Callable[[], str | None] = lambda: None,
    seconds: float = _READY_SECONDS,
) -> None:
    """Poll a condition until it holds.

    Args:
        condition: asked about twenty times a second.
        what: for the error, as in "waiting for ...".
        still_possible: None, or why there is no point in waiting longer.
        seconds: the deadline.

    Raises:
        LabError: it cannot hold any more, or the deadline passed.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        reason = still_possible()
        if reason is not None:
            raise LabError(f"waiting for {what}: {reason}")
        if time.monotonic() > deadline:
            raise LabError(f"waited {seconds:.0f} s for {what} in vain")
        time.sleep(_POLL_SECONDS)


class ApiServer:
    """A running API server, as tests and scripts see it.

    Args:
        settings: how it was started.
        programs: the folder with kubectl.

    Attributes:
        requests: sends requests as the administrator.
    """

    def __init__(self, settings: Settings, programs: Path) -> None:
        self.settings = settings
        self.programs = programs
        self.authority = Authority(settings.folder / "certificates")
        self.kubeconfig = write_admin_kubeconfig(settings, self.authority, "kubeshare-api-server")
        admin = self.authority.identity("admin", *ADMIN)
        self.requests = Requests(
            settings.url, self.authority.certificate, admin.certificate, admin.key
        )

    def kubeconfig_for(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig for any user and groups, to try what *they* may do.

        A service account is user ``system:serviceaccount:NAMESPACE:NAME`` in the
        groups ``system:serviceaccounts`` and ``system:serviceaccounts:NAMESPACE``.
        """
        file = "user-" + "-".join(
            part.replace(":", ".").replace("/", ".") for part in (user, *groups)
        )
        pair = self.authority.identity(file, user, groups)
        path = self.settings.folder / f"{file}.kubeconfig"
        return write_kubeconfig(path, user, self.settings.url, self.authority.certificate, pair)

    def get(self, path: str) -> Any:
        """GET a path of the API as the administrator and return the decoded answer.

        Raises:
            LabError: the API server cannot be reached or refuses.
        """
        return self.send("GET", path)

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request as the administrator and return the decoded answer.

        Raises:
            LabError: the API server cannot be reached or refuses; the message has its reason.
        """
        return self.requests.send(method, path, body)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl and return its standard output.

        Raises:
            LabError: it failed; the message is kubectl's, and the exit code is 1.
        """
        done = subprocess.run(
            [self.programs / "kubectl", "--kubeconfig", kubeconfig or self.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(done.stderr.strip(), exit_code=1)
        return done.stdout


def _bound_to_us(argv: list[str], programs: Path) -> list[str]:
    """Have the kernel end the program when this process ends, however it ends."""
    return ["setpriv", "--pdeathsig", "KILL", str(programs / argv[0]), *argv[1:]]


@contextmanager
def local_api_server(progress: Progress | None = None, *admission: str) -> Iterator[ApiServer]:
    """Run an API server on the loopback; it and its data are gone at the end of the block.

    RBAC is on. Needs no root. Ends with this process even if that is killed.

    Args:
        progress: reports the steps.
        admission: plugins besides those that are on by default.

    Raises:
        LabError: it could not be built or did not become ready.
    """
    programs = binaries.kubernetes(progress or Progress(quiet=True))
    with tempfile.TemporaryDirectory(prefix="kubeshare-api-server-") as name:
        folder = Path(name)
        port, etcd_port, peer_port = reserve_ports(3)
        settings = Settings(
            folder=folder,
            port=port,
            etcd_port=etcd_port,
            etcd_peer_port=peer_port,
            admission=("NodeRestriction", *admission),
        )
        authority = Authority(folder / "certificates")
        running: list[processes.Process] = []
        try:
            for argv in (etcd_arguments(settings), api_server_arguments(settings, authority)):
                log = folder / f"{argv[0]}.log"
                running.append(processes.start(_bound_to_us(argv, programs), log))

            def died() -> str | None:
                if all(processes.alive(process) for process in running):
                    return None
                logs = sorted(folder.glob("*.log"))
                return "it ended:\n" + "\n".join(processes.tail(log) for log in logs)

            wait_until(
                lambda: ready(settings, authority.certificate),
                "the API server",
                still_possible=died,
            )
            yield ApiServer(settings, programs)
        finally:
            processes.stop(reversed(running), gently=False)
