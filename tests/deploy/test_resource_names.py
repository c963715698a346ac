"""Every policy that knows one name of the extended resource knows all of them."""

import json
from typing import Any

import pytest

from kubeshare.api.types.constants import DRA_DRIVER, VGPU_RESOURCES
from kubeshare.install import manifests

POLICIES = [
    manifest
    for manifest in manifests.load(manifests.Options(extender=True))
    if manifest["kind"].endswith("AdmissionPolicy")
]


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_a_policy_knows_all_names_or_none(policy: dict[str, Any]) -> None:
    text = json.dumps(policy["spec"])
    if "resources.limits" not in text:
        return
    known = [name for name in VGPU_RESOURCES if f"'{name}'" in text]
    assert known in ([], list(VGPU_RESOURCES))


def test_the_names_are_those_of_the_device_class() -> None:
    (kind,) = [
        one
        for one in manifests.load(manifests.Options(extender=True))
        if one["kind"] == "DeviceClass"
    ]
    assert kind["metadata"]["name"] == DRA_DRIVER
    implicit = f"deviceclass.resource.kubernetes.io/{DRA_DRIVER}"
    assert (kind["spec"]["extendedResourceName"], implicit) == VGPU_RESOURCES
