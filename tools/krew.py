"""Builds the kubectl plugin's archives and the manifest by which krew installs them.

An archive has a launcher and, beside it, KubeShare's wheel and what it needs, unpacked. Compiled
modules have their Python's version in their names, so one archive serves several versions.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Architecture as krew names it -> the platform of its wheels."""
_NODE_ONLY: Final = ("grpcio", "protobuf")
"""What the programs of a node need, and no command."""
_BIN: Final = "kubectl-kubeshare"
_LAUNCHER: Final = f"""#!/bin/sh
# kubectl runs this for `kubectl kubeshare`. krew puts a link to it on the PATH.
here=$(dirname "$(readlink -f "$0")")
exec python3 -I -c '
import sys
if sys.version_info < (3, 11):
    sys.exit("kubectl kubeshare needs Python 3.11 or later as python3")
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "{_BIN}"
from kubeshare.cli.main import main
sys.exit(main())
' "$here/lib" "$@"
"""


class PluginError(Exception):
    """The plugin could not be built; the message has the last words."""


def archive(wheel: Path, requirements: str, architecture: str, path: Path) -> None:
    """Write the archive for Linux on an architecture of ``PLATFORMS``.

    Raises:
        PluginError: a package has no wheel for it, or cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pins = folder / "pins.txt"
        pins.write_text(_without(requirements, _NODE_ONLY))
        library = folder / "plugin" / "lib"
        for version in PYTHONS:
            target = folder / version
            places = ["--python-platform", PLATFORMS[architecture], "--python-version", version]
            _install(target, *places, "--require-hashes", "--requirements", str(pins))
            shutil.copytree(target, library, dirs_exist_ok=True)
        _install(library, str(wheel))
        for needless in ("bin", ".lock"):
            shutil.rmtree(library / needless, ignore_errors=True)
        launcher = folder / "plugin" / _BIN
        launcher.write_text(_LAUNCHER)
        launcher.chmod(0o755)
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / "plugin", ".", filter=_anonymous)


def manifest(version: str, archives: Mapping[str, Path], url: str) -> str:
    """The manifest for krew.

    Args:
        version: KubeShare's.
        archives: architecture -> the archive.
        url: the folder from which the archives can be downloaded.
    """
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kubeshare"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Share GPUs between pods, and see who uses them",
            "description": "Installs and checks KubeShare, shows the shares of each GPU and what "
            "they use, and explains why a pod waits for one.\n",
            "caveats": "Needs Python 3.11 or later as python3.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
                    "uri": f"{url.rstrip('/')}/{path.name}",
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "bin": _BIN,
                }
                for architecture, path in archives.items()
            ],
        },
    }
    return yaml.safe_dump(plugin, sort_keys=False)


def _install(target: Path, *arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    command += ["--only-binary", ":all:", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PluginError(f"building the kubectl plugin failed: {done.stderr.strip()[-800:]}")


def _without(requirements: str, names: tuple[str, ...]) -> str:
    """The requirements but for some packages, whose hashes are on lines of their own."""
    blocks = re.split(r"^(?=\S)", requirements, flags=re.MULTILINE)
    return "".join(each for each in blocks if each.partition("==")[0] not in names)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owners and times of this machine."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member
