"""The versions of our kinds, as a plan for the next one supposes them (decision record 064)."""

import json

import pytest

from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("kind", ["sharepods", "vgpus", "gpunodes", "gpuquotas", "shareusages"])
def test_one_version_is_served_and_stored_and_nothing_is_converted(
    kind: str, cluster: ApiServer
) -> None:
    crd = json.loads(cluster.kubectl("get", "crd", f"{kind}.kubeshare.nthu", "-o", "json"))
    versions = [(each["name"], each["served"], each["storage"]) for each in crd["spec"]["versions"]]
    assert versions == [("v1", True, True)]
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["spec"]["conversion"] == {"strategy": "None"}
