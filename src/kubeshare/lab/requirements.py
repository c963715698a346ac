"""Checks what the lab needs, and installs what is missing."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from kubeshare.lab.errors import LabError
from kubeshare.lab.progress import Progress

CNI_FOLDER = Path("/usr/lib/cni")
DEBIAN = Path("/etc/debian_version")
# Labs that start together install one after the other: apt-get does not wait for another one.
LOCK = Path("/run/lock/kubeshare-packages")
# Seconds that apt-get waits for dpkg where something else installs, such as automatic upgrades.
DPKG_PATIENCE = 300
# A program, or a file by its absolute path -> the Debian package that has it.
PACKAGES = {
    "runc": "runc",
    str(CNI_FOLDER / "ptp"): "containernetworking-plugins",
    "nft": "nftables",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not here."""
    there = {need: Path(need).exists() or shutil.which(need) is not None for need in PACKAGES}
    return [package for need, package in PACKAGES.items() if not there[need]]


def _install_missing(progress: Progress) -> None:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if packages := missing_packages():
            _install(packages, progress)


def _install(packages: list[str], progress: Progress) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-o", f"DPkg::Lock::Timeout={DPKG_PATIENCE}", "install", "--yes"]
    install += ["--no-install-recommends", *packages]
    with progress.step(f"install {', '.join(packages)} from Debian"):
        for command in (["apt-get", "update"], install):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != 0 and command is install:
                raise LabError(f"{' '.join(command)} failed: {done.stderr.strip()[-800:]}")


def check_namespaces() -> None:
    """Check that this machine allows namespaces.

    Raises:
        LabError: it does not; the message has the kernel's error.
    """
    command = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(
            f"this machine does not let root make namespaces ({done.stderr.strip()}): the lab "
            "needs a real or virtual machine, or a privileged container"
        )


def check(progress: Progress) -> None:
    """Check that the lab can run here; install missing Debian packages.

    Raises:
        LabError: it cannot; the message says what is missing and how to get it.
    """
    if os.geteuid() != 0:
        raise LabError(
            "the lab makes network namespaces, mounts and control groups and so must be run by "
            "root: use sudo, or run the same against a cluster of yours with KUBECONFIG=…"
        )
    missing = missing_packages()
    if missing and DEBIAN.exists() and shutil.which("apt-get"):
        _install_missing(progress)
        missing = missing_packages()
    if missing:
        needs = [need for need, package in PACKAGES.items() if package in missing]
        raise LabError(
            f"the lab needs {', '.join(needs)}, on Debian and Ubuntu from the packages "
            f"{' '.join(missing)}: install them and run this again"
        )
    check_namespaces()
