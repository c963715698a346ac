"""`kubeshare must-gather` reads a real API server, and leaves out what users wrote."""

import asyncio
import tarfile
from pathlib import Path

import pytest
import yaml

from fakes.manifests import sharepod
from kubeshare.cli.must_gather import fill
from kubeshare.install.must_gather.archive import LEFT_OUT, open_archive
from kubeshare.kube.client.client import Client
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver

SECRET = "hunter2"  # what must never come out


def test_a_real_cluster_is_gathered_without_what_users_wrote(
    cluster: ApiServer, tmp_path: Path
) -> None:
    made = sharepod("gathered", metadata={"namespace": "default", "annotations": {"a/b": SECRET}})
    made["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
    # It also writes the whole object into an annotation.
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    path = tmp_path / "a.tar.gz"

    async def main() -> None:
        async with Client.connect(cluster.kubeconfig) as client:
            with open_archive(path, 64 << 20, 1) as archive:
                await fill(client, archive, ())

    try:
        asyncio.run(main())
    finally:
        cluster.kubectl("delete", "sharepod", "gathered", "-n", "default")
    with tarfile.open(path) as tar:
        files = {
            member.name.rpartition("/")[2]: file.read().decode()
            for member in tar
            if (file := tar.extractfile(member)) is not None
        }
    assert "gathered" in files["sharepods.json"]
    assert SECRET not in "".join(files.values())
    # There is no installation, only its kinds and policies.
    lines = files[LEFT_OUT].partition("this time:\n")[2].split("\n")
    assert [line.partition(":")[0] for line in lines if line] == ["configuration.yaml"]
