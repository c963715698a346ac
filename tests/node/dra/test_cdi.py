"""CDI specs of GPUs and of claims."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.node import A_GPU, gpu_spec_file
from kubeshare.node.dra import cdi
from kubeshare.node.paths import NodePaths

MOUNTS = cdi.ClaimMounts(
    claim=Path("/run/kubeshare/claims/c"),
    counters=Path("/run/kubeshare/counters/c"),
    library=Path("/var/lib/kubeshare/lib/0/libkubeshare-vgpu.so"),
    preload=Path("/var/lib/kubeshare/lib/0/ld.so.preload"),
)
HOSTILE = [
    "",
    ".",
    "..",
    "a/b",
    "../../etc/passwd",
    "a\0b",
    "a\n",
    "-a",
    "a=",
    "a.b",
    "a" * 129,
    "é",
]


def test_a_gpu_is_found_by_its_uuid_whatever_the_kind(tmp_path: Path) -> None:
    paths = NodePaths(tmp_path)
    gpu_spec_file(paths, "k8s.device-plugin.nvidia.com/gpu")
    found = cdi.find_gpu([paths.static_cdi_folder, paths.dynamic_cdi_folder], A_GPU.uuid)
    assert found == f"k8s.device-plugin.nvidia.com/gpu={A_GPU.uuid}"


def test_nvidias_usual_kind_wins_where_several_have_the_gpu(paths: NodePaths) -> None:
    gpu_spec_file(paths, "a.first.example/gpu")
    found = cdi.find_gpu([paths.static_cdi_folder], A_GPU.uuid)
    assert found == f"nvidia.com/gpu={A_GPU.uuid}"


def test_a_gpu_that_no_spec_has_is_an_error_that_says_how_to_make_one(paths: NodePaths) -> None:
    with pytest.raises(cdi.GpuDeviceMissingError, match="nvidia-ctk cdi generate"):
        cdi.find_gpu([paths.static_cdi_folder], "GPU-none")


@pytest.mark.parametrize("content", ["{", "[]", "\x00", "devices: 1\nkind: x"])
def test_a_broken_spec_of_others_is_as_good_as_none(paths: NodePaths, content: str) -> None:
    (paths.static_cdi_folder / "a.yaml").write_text(content)
    assert cdi.find_gpu([paths.static_cdi_folder], A_GPU.uuid).startswith("nvidia.com/gpu=")


def test_a_spec_that_is_written_anew_is_read_anew(paths: NodePaths) -> None:
    folders = [paths.static_cdi_folder]
    cdi.find_gpu(folders, A_GPU.uuid)
    (file,) = paths.static_cdi_folder.iterdir()
    file.write_text(file.read_text().replace(A_GPU.uuid, "GPU-that-was-put-in-its-place"))
    assert cdi.find_gpu(folders, "GPU-that-was-put-in-its-place")
    with pytest.raises(cdi.GpuDeviceMissingError):
        cdi.find_gpu(folders, A_GPU.uuid)


def test_a_claims_device_mounts_its_folder_counters_library_and_preload(tmp_path: Path) -> None:
    cdi.write_claim(tmp_path, "0c1a", {"0c1a": MOUNTS})
    (file,) = tmp_path.iterdir()
    spec = json.loads(file.read_text())
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "kubeshare.nthu/claim")
    (device,) = spec["devices"]
    assert device["name"] == "0c1a"
    mounts = device["containerEdits"]["mounts"]
    assert {mount["containerPath"]: mount["options"][0] for mount in mounts} == {
        "/run/kubeshare/claim": "ro",
        "/run/kubeshare/counters": "rw",
        "/opt/kubeshare/libkubeshare-vgpu.so": "ro",
        "/etc/ld.so.preload": "ro",
    }


def test_a_claim_of_several_grants_has_one_spec_and_a_device_for_each(tmp_path: Path) -> None:
    other = replace(MOUNTS, claim=Path("/run/kubeshare/claims/c.a"))
    cdi.write_claim(tmp_path, "c", {"c.b": MOUNTS, "c.a": other})
    (file,) = tmp_path.iterdir()
    devices = json.loads(file.read_text())["devices"]
    folders = {
        device["name"]: device["containerEdits"]["mounts"][0]["hostPath"] for device in devices
    }
    assert folders == {"c.a": "/run/kubeshare/claims/c.a", "c.b": "/run/kubeshare/claims/c"}
    assert cdi.claims(tmp_path) == {"c"}
    assert cdi.claim_device("c.a") == "kubeshare.nthu/claim=c.a"


def test_a_written_claim_is_listed_until_it_is_removed(tmp_path: Path) -> None:
    cdi.write_claim(tmp_path, "a-claim", {"a-claim": MOUNTS})
    cdi.write_claim(tmp_path, "a-claim", {"a-claim": MOUNTS})
    assert cdi.claims(tmp_path) == {"a-claim"}
    cdi.remove_claim(tmp_path, "a-claim")
    cdi.remove_claim(tmp_path, "a-claim")
    assert cdi.claims(tmp_path) == set()


def test_a_claims_spec_is_never_taken_for_a_gpus(paths: NodePaths) -> None:
    cdi.write_claim(paths.static_cdi_folder, A_GPU.uuid, {A_GPU.uuid: MOUNTS})
    assert cdi.find_gpu([paths.static_cdi_folder], A_GPU.uuid).startswith("nvidia.com/gpu=")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_claim_name_becomes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name for files"):
        cdi.write_claim(tmp_path / "cdi", name, {name: MOUNTS})
    with pytest.raises(ValueError, match="is no name for files"):
        cdi.remove_claim(tmp_path / "cdi", name)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
