"""What the record of a GPU in use needs is not deleted."""

import json

import pytest
import yaml

from fakes import manifests as fakes
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

DELETE_NAMESPACE = ("delete", "namespace", NAMESPACE, "--dry-run=server")


def set_holders(cluster: ApiServer, vgpu: str, *holders: object) -> None:
    status = json.dumps({"status": {"holders": holders}})
    cluster.kubectl("patch", "vgpu", vgpu, "--subresource=status", "--type=merge", "-p", status)


def test_a_vgpu_is_deleted_when_its_last_holder_has_left(cluster: ApiServer, vgpu: str) -> None:
    set_holders(cluster, vgpu, fakes.holder("a"), fakes.holder("b"))

    for which in ((vgpu,), ("--all",)):
        with pytest.raises(LabError, match=r"is in use by 2 holders.*delete their SharePods"):
            cluster.kubectl("delete", "vgpu", *which, "--dry-run=server")
    set_holders(cluster, vgpu)

    cluster.kubectl("delete", "vgpu", vgpu, "--dry-run=server")


def test_kubeshares_namespace_is_deleted_when_no_gpu_is_in_use(
    cluster: ApiServer, vgpu: str
) -> None:
    ours = manifests.load(manifests.Options())
    system = [one for one in ours if one["kind"] == "Namespace"]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(system))

    def refusal() -> str:
        try:
            cluster.kubectl(*DELETE_NAMESPACE)
        except LabError as error:
            return str(error)
        return ""

    wait_until(lambda: not refusal(), "the namespace to be free")
    set_holders(cluster, vgpu, fakes.holder("a"))

    # The policy reads vGPUs from a cache of the API server.
    wait_until(lambda: vgpu in refusal(), "the policy to refuse")
    assert "use `kubeshare uninstall`, which stops no running pod" in refusal()
    set_holders(cluster, vgpu)
    wait_until(lambda: not refusal(), "the namespace to be free")
