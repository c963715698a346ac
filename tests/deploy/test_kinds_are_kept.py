"""Our kinds are not deleted by a wrong command, since that would end every workload."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

PLURALS = ("sharepods", "vgpus", "gpunodes", "gpuquotas", "shareusages")
KINDS = tuple(f"{kind}.kubeshare.nthu" for kind in PLURALS)
ADVICE = "use `kubeshare uninstall`, which stops no running pod"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_not_deleted_by_its_name(cluster: ApiServer, kind: str) -> None:
    with pytest.raises(LabError, match=ADVICE):
        cluster.kubectl("delete", "crd", kind)


def test_the_kinds_are_not_deleted_all_at_once(
    cluster: ApiServer, namespace: str, create: Callable[[dict[str, Any]], str]
) -> None:
    spec = {"containers": [{"name": "main"}]}
    metadata = {"name": "kept"}
    create(
        {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "SharePod",
            "metadata": metadata,
            "spec": spec,
        }
    )
    with pytest.raises(LabError, match=ADVICE):
        cluster.kubectl(
            "delete", "--raw", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        )
    assert "kept" in cluster.kubectl("get", "shp", "-n", namespace, "-o", "name")


def test_kinds_of_others_are_deleted_as_ever(cluster: ApiServer) -> None:
    names = {"plural": "things", "singular": "thing", "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(kind))
    cluster.kubectl("delete", "crd", "things.example.org")
