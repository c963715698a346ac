"""Writes container images as OCI archives, without a registry.

``oci-layout``, ``index.json`` and the blobs that it leads to: a manifest, a
configuration and the layers. Layers are not compressed, since they only travel
from one folder of this machine to another.

An archive may leave out layers that the receiver has already: their content is
known by its digest. So after a change of code only a small layer travels.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

_CHUNK = 1 << 20
_MEDIA = "application/vnd.oci.image"


class Layer(Struct, frozen=True):
    """A layer: an uncompressed tar.

    Args:
        path: where it is.
        digest: ``sha256:`` and 64 hexadecimal digits.
        size: bytes.
    """

    path: Path
    digest: str
    size: int


class Entry(Struct, frozen=True):
    """A file to be put into a layer.

    Args:
        source: the file, folder or symbolic link of this machine.
        target: its absolute path in the image.
    """

    source: Path
    target: str


def layer(path: Path) -> Layer:
    """Describe a tar as a layer; reads all of it."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return Layer(path, f"sha256:{total.hexdigest()}", path.stat().st_size)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who built it and when is left out, so equal contents make equal layers."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def write_layer(path: Path, entries: Iterable[Entry]) -> Layer:
    """Make a layer of files, the same bytes for the same contents.

    Args:
        path: the tar to be made.
        entries: folders come with all that is in them.
    """
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(entries, key=lambda one: one.target):
            tar.add(entry.source, entry.target.lstrip("/"), filter=_anonymous)
    return layer(path)


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": digest, "size": len(data)}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _blob_name(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def write_archive(
    path: Path,
    name: str,
    layers: Sequence[Layer],
    config: Mapping[str, Any],
    *,
    leave_out: Collection[str] = (),
) -> None:
    """Write an image as an OCI archive.

    Args:
        path: the archive to be made.
        name: the image's full name, for example ``docker.io/library/kubeshare:dev``.
        layers: from the lowest up.
        config: what the image says of its containers: ``Entrypoint``, ``Env``, ...
        leave_out: digests of layers that whoever imports it has already.
    """
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [one.digest for one in layers]},
    }
    config_blob = json.dumps(image, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _descriptor("config.v1+json", config_blob),
        "layers": [
            {"mediaType": f"{_MEDIA}.layer.v1.tar", "digest": one.digest, "size": one.size}
            for one in layers
        ],
    }
    manifest_blob = json.dumps(manifest, sort_keys=True).encode()
    described = _descriptor("manifest.v1+json", manifest_blob)
    described["annotations"] = {"io.containerd.image.name": name}
    described["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "manifests": [described]}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for blob in (config_blob, manifest_blob):
            _add(tar, _blob_name(f"sha256:{hashlib.sha256(blob).hexdigest()}"), blob)
        for one in layers:
            if one.digest not in leave_out:
                tar.add(one.path, _blob_name(one.digest))
