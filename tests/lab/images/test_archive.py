"""An image without a registry: what containerd will read."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kubeshare.lab.images.archive import Entry, Layer, write_archive, write_layer

NAME = "docker.io/library/example:1"


@pytest.fixture
def layers(tmp_path: Path) -> list[Layer]:
    files = []
    for name in ("base", "code"):
        source = tmp_path / name
        source.mkdir()
        (source / "file").write_text(name)
        files.append(write_layer(tmp_path / f"{name}.tar", [Entry(source, f"/opt/{name}")]))
    return files


def _read(archive: Path) -> dict[str, bytes]:
    contents = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            contents[member.name] = file.read()
    return contents


def _blob(contents: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    data = contents["blobs/" + descriptor["digest"].replace(":", "/")]
    assert len(data) == descriptor["size"]
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"]
    return data


def test_every_blob_is_found_by_the_digest_that_leads_to_it(
    tmp_path: Path, layers: list[Layer]
) -> None:
    write_archive(tmp_path / "image.tar", NAME, layers, {"Entrypoint": ["/x"]})

    contents = _read(tmp_path / "image.tar")
    index = json.loads(contents["index.json"])
    (described,) = index["manifests"]
    manifest = json.loads(_blob(contents, described))
    config = json.loads(_blob(contents, manifest["config"]))
    assert described["annotations"]["io.containerd.image.name"] == NAME
    assert config["config"] == {"Entrypoint": ["/x"]}
    assert config["rootfs"]["diff_ids"] == [one.digest for one in layers]
    assert [_blob(contents, one) for one in manifest["layers"]] == [
        one.path.read_bytes() for one in layers
    ]


def test_a_layer_that_the_receiver_has_does_not_travel(tmp_path: Path, layers: list[Layer]) -> None:
    write_archive(tmp_path / "image.tar", NAME, layers, {}, leave_out={layers[0].digest})

    names = _read(tmp_path / "image.tar").keys()
    assert "blobs/" + layers[0].digest.replace(":", "/") not in names
    assert "blobs/" + layers[1].digest.replace(":", "/") in names


def test_equal_contents_make_equal_layers(tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        source = tmp_path / str(number)
        source.mkdir()
        for name in ("b", "a")[:: 1 if number else -1]:
            (source / name).write_text(name)
        digests.add(write_layer(tmp_path / f"{number}.tar", [Entry(source, "/x")]).digest)

    assert len(digests) == 1


def test_a_program_stays_executable_and_belongs_to_root(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    made = write_layer(tmp_path / "layer.tar", [Entry(program, "/usr/local/bin/program")])

    with tarfile.open(made.path) as tar:
        (member,) = tar.getmembers()
    assert (member.name, member.mode, member.uid) == ("usr/local/bin/program", 0o755, 0)
