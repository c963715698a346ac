"""The released image, built by buildah, runs every program as the manifests run them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.stage import Stage, eventually
from kubeshare.install import manifests
from kubeshare.lab.images import binaries, images
from kubeshare.lab.images.archive import write_archive
from kubeshare.lab.progress import Progress
from tools import image_context

pytestmark = pytest.mark.lab

BASE = "localhost/kubeshare-test/base"
IMAGE = "localhost/kubeshare-test/kubeshare:1"
NOBODY = {"runAsNonRoot": True, "runAsUser": 65532, "readOnlyRootFilesystem": True} | {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture
def _storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of buildah's images that goes with the test."""
    configuration = tmp_path / "storage.conf"
    folders = {"graphroot": tmp_path / "images", "runroot": tmp_path / "run"}
    lines = ["[storage]", 'driver = "vfs"', *(f'{key} = "{at}"' for key, at in folders.items())]
    configuration.write_text("\n".join(lines))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(configuration))


def buildah(*arguments: str | Path) -> str:
    return subprocess.run(
        ["buildah", *arguments], check=True, capture_output=True, text=True
    ).stdout


def built(folder: Path) -> Path:
    """The image as an archive, on the lab's Debian by its digest."""
    base = folder / "base.tar"
    write_archive(base, f"{BASE}:1", [images.base_layer(Progress())], {"Env": ["PATH=/usr/bin"]})
    buildah("pull", "--quiet", f"oci-archive:{base}")
    [about] = json.loads(buildah("images", "--json", "--no-trunc"))
    context, archive = folder / "context", folder / "kubeshare.tar"
    image_context.write_context(context)
    image_context.build(context, f"{BASE}@{about['digest']}", IMAGE)
    buildah("push", "--quiet", IMAGE, f"oci-archive:{archive}:{IMAGE}")
    return archive


def programs() -> dict[str, list[str]]:
    """Name -> command, of every container of KubeShare's programs."""
    return {
        container["name"]: [*container["command"][:3], "--help"]
        for manifest in manifests.load(manifests.Options(extender=True))
        if manifest["kind"] in ("Deployment", "DaemonSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    }


@pytest.mark.usefixtures("_storage")
def test_every_program_starts_without_root_and_a_writable_disk(
    stage: Stage, tmp_path: Path
) -> None:
    node = stage.lab.nodes[0]
    node.import_image(built(tmp_path), binaries.containerd(Progress()))
    containers = [
        {"name": name, "image": IMAGE, "command": command, "securityContext": NOBODY}
        for name, command in programs().items()
    ]
    assert len(containers) == 5
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "released-image", "namespace": "default"},
        "spec": {"nodeName": node.name, "restartPolicy": "Never", "containers": containers},
    }
    stage.lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    path = "/api/v1/namespaces/default/pods/released-image"
    try:
        eventually(
            lambda: stage.lab.api.get(path)["status"]["phase"] == "Succeeded",
            "every program to print its options",
            explain=lambda: json.dumps(stage.lab.api.get(path)["status"]),
        )
    finally:
        stage.lab.kubectl("delete", "pod", "released-image", "--wait=false")
