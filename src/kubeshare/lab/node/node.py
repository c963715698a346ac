"""A node: a machine that runs containerd, kubelet and kube-proxy.

It sees this machine's programs and libraries but writes to a disk of its own: ``/etc``,
``/var/lib`` and ``/var/log`` are overlays, ``/run`` is new. So every fixed path of Kubernetes
(device plugins, PodResources, CDI, host paths of DaemonSets) exists once for each node, and
nothing of it appears outside.
"""

import os
import socket
from pathlib import Path

import yaml

from kubeshare.lab import configuration
from kubeshare.lab.control_plane.api_server import wait_until
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.lab.files import replace
from kubeshare.lab.images import images
from kubeshare.lab.images.archive import Layer
from kubeshare.lab.layout import NodeLayout
from kubeshare.lab.node import cgroups, gpus
from kubeshare.lab.node.machine import Machine

# What is written here is small and ends with the node; the bind mounts below are its disk.
_OVERLAYS = ("/etc", "/var/lib", "/var/log")
_KUBELET_PORT = 10250
_MOUNTED = "/run/kubeshare-lab/mounted"
_BINDS = ("/var/lib/containerd", "/var/lib/kubelet", "/var/lib/kubeshare")
_RUN = ("containerd", "cni", "cdi", "netns", "kubeshare", "nvidia/driver", "lock", "kubeshare-lab")
# The kubelet sets these sysctls, which belong to the whole machine. Here it finds
# files of the node's own that have the values already.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Node:
    """One node of a lab, running or not.

    Args:
        layout: its names, addresses and folders.
        profile: of its fake GPUs: a name like ``V100x2``, a file, or ``none``.
        by_claims: whether a DRA driver offers the GPUs, not a device plugin.
    """

    def __init__(self, layout: NodeLayout, profile: str, *, by_claims: bool = False) -> None:
        self.layout = layout
        self.profile = profile
        self.by_claims = by_claims
        self.machine = Machine(layout.lab, layout.name)

    @property
    def name(self) -> str:
        """Its name in Kubernetes."""
        return self.layout.name

    @property
    def state_folder(self) -> Path:
        """Where its fake GPUs keep their state, for :mod:`kubeshare.fakegpu`."""
        return self.layout.gpu_state

    @property
    def parts(self) -> list[str]:
        """The programs that it should run."""
        offers = gpus.DRA_DRIVER if self.by_claims else gpus.DEVICE_PLUGIN
        driver = [] if self.profile == gpus.NONE else [offers]
        return ["containerd", "kubelet", "kube-proxy", *driver]

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return gpus.count(self.profile)

    @property
    def plugged(self) -> int:
        """How many GPUs its device plugin offers."""
        return 0 if self.by_claims else self.gpus

    def exec(self, *argv: str) -> str:
        """Run a command on the node, as root, and return its standard output."""
        return self.machine.run(*argv)

    def prepare(self, authority: Authority, api_url: str) -> None:
        """Write its configuration, certificates, disk and GPUs; what is there is kept."""
        layout = self.layout
        config = layout.folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        user = f"system:node:{self.name}"
        hosts = (self.name, layout.address)
        pair = authority.identity(self.name, user, ("system:nodes",), hosts)
        ca = authority.certificate
        write_kubeconfig(config / "kubelet.kubeconfig", self.name, api_url, ca, pair)
        proxy = authority.identity("kube-proxy", "system:kube-proxy")
        proxy_kubeconfig = config / "kube-proxy.kubeconfig"
        write_kubeconfig(proxy_kubeconfig, "kube-proxy", api_url, ca, proxy)
        kubelet = configuration.kubelet(layout, ca, pair.certificate, pair.key)
        replace(config / "kubelet.yaml", yaml.safe_dump(kubelet))
        kube_proxy = configuration.kube_proxy(layout, proxy_kubeconfig)
        replace(config / "kube-proxy.yaml", yaml.safe_dump(kube_proxy))
        replace(config / "containerd.toml", configuration.containerd())
        replace(config / "cni.conflist", configuration.cni(layout))
        for setting, value in _KERNEL_SETTINGS.items():
            replace(config / setting.replace("/", "."), f"{value}\n")
        gpus.install(layout, self.profile)

    def boot(self, init_program: Path) -> bool:
        """Make its namespaces and mount its disk; False when they were there already."""
        if self.machine.init() is not None and not self._mounted():
            self.machine.stop("pause", gently=False)
        if self.machine.init() is None:
            # A machine that was off has no groups. Over each group of a container that is gone,
            # the kubelet would wait six seconds before it starts.
            cgroups.remove(self.layout.cgroup)
        cgroups.make(self.layout.cgroup)
        booted = self.machine.boot(init_program)
        if booted:
            self.machine.run("sh", "-ec", self._mount_script())
        return booted

    def _mounted(self) -> bool:
        """Whether its disk is mounted whole: a boot may have been interrupted."""
        return bool(self.machine.run("sh", "-c", f"ls {_MOUNTED} 2>/dev/null || true"))

    def _mount_script(self) -> str:
        lab, folder = self.layout.lab.folder, f"/mnt/{self.name}"
        # The lab's folder stays reachable while an overlay hides its path.
        lines = [f"mount --bind {lab} /mnt"]
        # As on a distribution: nothing can be executed from /run.
        lines.append("mount -t tmpfs -o mode=755,nosuid,nodev,noexec tmpfs /run")
        lines += [f"mkdir -p /run/{one}" for one in _RUN]
        for target in _OVERLAYS:
            upper = f"/run/kubeshare-lab{target}"
            options = f"lowerdir={target},upperdir={upper},workdir={upper}.work"
            lines.append(f"mkdir -p {upper} {upper}.work")
            lines.append(f"mount -t overlay overlay -o {options} {target}")
        for target in _BINDS:
            source = f"{folder}/disk/{Path(target).name}"
            lines.append(f"mkdir -p {source} {target}; mount --bind {source} {target}")
        lines += gpus.mount_script(self.layout)
        lines.append(f"mount --bind /mnt {lab}; umount /mnt")
        config = self.layout.folder / "config"
        lines.append("mkdir -p /etc/cni/net.d")
        lines.append(f"cp {config}/cni.conflist /etc/cni/net.d/10-lab.conflist")
        lines += [
            f"mount --bind {config / setting.replace('/', '.')} /proc/sys/{setting}"
            for setting in _KERNEL_SETTINGS
        ]
        lines.append(f"mount --make-rshared /; touch {_MOUNTED}")
        return "\n".join(lines)

    def start(self, kubernetes: Path, containerd: Path) -> None:
        """Start those of its programs that do not run."""
        config = self.layout.folder / "config"
        path = {"PATH": f"{containerd}:{os.environ.get('PATH', os.defpath)}"}
        runtime = [str(containerd / "containerd"), f"--config={config / 'containerd.toml'}"]
        self.machine.start("containerd", runtime, path)
        wait_until(self._containerd_answers, f"containerd of {self.name}")
        kubelet = [
            str(kubernetes / "kubelet"),
            f"--config={config / 'kubelet.yaml'}",
            f"--kubeconfig={config / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.layout.address}",
        ]
        self.machine.start("kubelet", kubelet)
        wait_until(self._kubelet_answers, f"the kubelet of {self.name}")
        proxy = [str(kubernetes / "kube-proxy"), f"--config={config / 'kube-proxy.yaml'}"]
        self.machine.start("kube-proxy", proxy)
        if self.profile != gpus.NONE and self.by_claims:
            gpus.start_dra_driver(self.machine, self.layout)
        elif self.profile != gpus.NONE:
            gpus.start_device_plugin(self.machine)

    def _containerd_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.machine.path("/run/containerd/containerd.sock")))
            except OSError:
                return False
            return True

    def _kubelet_answers(self) -> bool:
        try:
            socket.create_connection((self.layout.address, _KUBELET_PORT), timeout=1).close()
        except OSError:
            return False
        return True

    def connected(self) -> bool:
        """Whether its veth pair to the control plane exists."""
        return "eth0" in self.machine.run_in_network("ip -brief link")

    def load_images(self, pause: Path, layers: list[Layer], containerd: Path) -> None:
        """Import the two images into its containerd, without the layers that it has.

        Args:
            pause: the program of the pause image.
            layers: of ``kubeshare:dev``.
            containerd: the folder with ``ctr``.
        """
        ctr = [str(containerd / "ctr"), "--namespace=k8s.io"]
        pause_archive = self.layout.folder / "pause.tar"
        images.write_pause_archive(pause_archive, pause)
        present = set(self.machine.run(*ctr, "content", "list", "--quiet").split())
        archive = self.layout.folder / "kubeshare.tar"
        images.write_kubeshare_archive(archive, layers, present)
        for one in (pause_archive, archive):
            self.import_image(one, containerd)
            one.unlink()

    def import_image(self, archive: Path, containerd: Path) -> None:
        """Import an OCI archive into its containerd.

        Args:
            archive: a file of this machine.
            containerd: the folder with ``ctr``.
        """
        ctr = (str(containerd / "ctr"), "--namespace=k8s.io")
        self.machine.run(*ctr, "images", "import", "--local", str(archive))
