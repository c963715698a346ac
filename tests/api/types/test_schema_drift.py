"""The schemas under manifests/crds and the structs that read them name the same fields."""

from typing import Any

import msgspec
import pytest
import yaml

from kubeshare.api.types import gpu_quota, share_usage, v1
from kubeshare.install.manifests import manifest_folder
from kubeshare.kube.meta import Condition

# (CRD, path of the schema, struct, whether the schema may have fields that we do not read)
PAIRS = [
    ("vgpus", "spec", v1.VGPUSpec, False),
    ("vgpus", "status", v1.VGPUStatus, False),
    ("vgpus", "status.holders[]", v1.Holder, False),
    ("vgpus", "status.conditions[]", Condition, False),
    ("sharepods", "status", v1.SharePodStatus, False),
    ("sharepods", "status.gpus[]", v1.AllocatedGPU, False),
    ("sharepods", "status.conditions[]", Condition, False),
    ("sharepods", "spec", v1.SharePodSpec, True),
    ("sharepods", "spec.gpu", v1.GPUSpec, True),
    ("sharepods", "spec.gpu.setAside[]", v1.ExcludedNode, False),
    ("gpunodes", "spec", v1.GPUNodeSpec, False),
    ("gpunodes", "spec.devices[]", v1.GPUDevice, False),
    ("gpunodes", "spec.links[]", v1.GPULink, False),
    ("gpuquotas", "spec", gpu_quota.GPUQuotaSpec, False),
    ("gpuquotas", "spec.limits[]", gpu_quota.GPULimit, False),
    ("gpuquotas", "status", gpu_quota.GPUQuotaStatus, False),
    ("gpuquotas", "status.summary", gpu_quota.GPUQuotaSummary, False),
    ("gpuquotas", "status.conditions[]", Condition, False),
    ("shareusages", "status", share_usage.ShareUsageStatus, False),
    ("shareusages", "status.shares[]", share_usage.UsedShare, False),
]


def schema_of(crd: str, path: str = "") -> dict[str, Any]:
    manifest = yaml.safe_load((manifest_folder() / "crds" / f"{crd}.yaml").read_text())
    schema: dict[str, Any] = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in filter(None, path.split(".")):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


@pytest.mark.parametrize(("crd", "path", "struct", "may_have_more"), PAIRS)
def test_struct_and_schema_name_the_same_fields(
    crd: str, path: str, struct: type[msgspec.Struct], may_have_more: bool
) -> None:
    in_schema = set(schema_of(crd, path)["properties"])
    in_struct = {field.encode_name for field in msgspec.structs.fields(struct)}

    assert in_struct <= in_schema
    assert may_have_more or in_schema <= in_struct


def walk(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += walk(child, f"{path}.{name}")
    if "items" in schema:
        found += walk(schema["items"], f"{path}[]")
    return found


@pytest.mark.parametrize("crd", ["sharepods", "vgpus", "gpunodes", "gpuquotas", "shareusages"])
def test_every_field_is_described_and_bounded(crd: str) -> None:
    for path, schema in walk(schema_of(crd), crd):
        if path.count(".") == 0 or path.split(".")[1] in {"apiVersion", "kind", "metadata"}:
            continue
        assert "description" in schema or path.endswith("[]"), f"{path} has no description"
        if schema.get("type") == "array":
            assert "maxItems" in schema, f"{path} has no bound"
        if schema.get("type") == "string" and "enum" not in schema and "format" not in schema:
            assert "maxLength" in schema or "pattern" in schema, f"{path} has no bound"
        assert schema.get("type") != "number", f"{path} is a float"
