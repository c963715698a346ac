"""Profiles: what a machine is made of, and what is wrong with a text that does not say."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native


def test_a_name_is_a_model_and_a_number(tmp_path: Path) -> None:
    found = fakegpu.gpus("V100x4")
    assert [gpu.index for gpu in found] == [0, 1, 2, 3]
    assert {gpu.model for gpu in found} == {"Tesla V100-SXM2-16GB"}
    assert {gpu.total_memory for gpu in found} == {17_179_869_184}
    assert not any(tmp_path.iterdir())


def test_an_h100_has_what_kernels_of_its_time_ask_for(tmp_path: Path) -> None:
    script = """
        attribute = d.CUdevice_attribute
        answer = [good(d.cuDeviceGetAttribute(each, device)) for each in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)]
        answer.append(good(d.cuDeviceTotalMem(device)) >> 30)
    """
    assert drive(tmp_path, script, "H100x1") == [9, 0, 114, 227 << 10, 80]


def test_uuids_follow_from_model_index_and_seed() -> None:
    def uuids(profile: str, seed: str) -> list[str]:
        return [gpu.uuid for gpu in fakegpu.gpus(profile, seed)]

    same = uuids("V100x4", "a")[:2]
    assert uuids("V100x2", "a") == same
    assert len({*uuids("V100x2", "b"), *uuids("V100-PCIEx2", "a"), *same}) == 6


def test_it_is_known_where_a_gpu_is(tmp_path: Path) -> None:
    profile = tmp_path / "two.profile"
    profile.write_text("model = V100\ncount = 2\nnuma.1 = 1\ncpus.0 = 0-3,8\n")
    first, second = fakegpu.gpus(profile)
    assert (first.pci_address, first.numa_node, first.cpu_list) == ("0000:1a:00.0", 0, "0-3,8")
    assert (second.pci_address, second.numa_node, second.cpu_list) == ("0000:1b:00.0", 1, "")


def test_the_shipped_profiles_are_good() -> None:
    counts = {path.stem: len(fakegpu.gpus(path)) for path in fakegpu.profiles()}
    assert counts == {
        "dgx-1": 8,
        "dgx-a100": 8,
        "dgx-h100": 8,
        "p4-8g-x8-pcie": 8,
        "v100-16g-x2-pcie": 2,
        "v100-16g-x4-nvlink": 4,
        "v100-mixed-x3": 3,
    }


def test_a_file_says_what_differs_from_its_model(tmp_path: Path) -> None:
    profile = tmp_path / "small.profile"
    profile.write_text(
        "# a small one\nmodel = V100\ncount=3\nmemory = 1024 # MiB\nname = Toy GPU\n"
    )
    found = fakegpu.gpus(profile)
    assert [(gpu.model, gpu.total_memory) for gpu in found] == [("Toy GPU", 1 << 30)] * 3


def test_gpus_of_a_machine_may_differ(tmp_path: Path) -> None:
    profile = tmp_path / "mixed.profile"
    profile.write_text(
        "count = 3\nmodel.1 = V100-PCIE\nmemory.1 = 32768\nname.2 = Toy GPU\nmemory.2 = 1024\n"
    )
    found = fakegpu.gpus(profile)
    assert [(gpu.model, gpu.total_memory >> 30) for gpu in found] == [
        ("Tesla V100-SXM2-16GB", 16),
        ("Tesla V100-PCIE-16GB", 32),
        ("Toy GPU", 1),
    ]
    # A GPU is the same one beside others of another model.
    assert found[0].uuid == fakegpu.gpus("V100x1")[0].uuid
    assert len({gpu.uuid for gpu in found}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = X100", "1: model = X100: expected a model"),
        ("model = V100\ncount = 17", "2: count = 17: expected a number from 1 to 16"),
        ("model.1 = X100", "1: model.1 = X100: expected a model"),
        ("model.16 = V100", "1: unknown key model.16"),
        ("memory.0 = 16Gi", "1: memory.0 = 16Gi: expected a number of MiB"),
        ("memory = 16Gi", "1: memory = 16Gi: expected a number of MiB"),
        ("kernel_us = -1", "1: kernel_us = -1: expected microseconds"),
        ("\n\ncolour = red", "3: unknown key colour"),
        ("V100", "1: expected key = value"),
        ("link.0.0 = NV2", "1: link.0.0: expected two GPUs"),
        ("link.0.1 = NV99", "1: link.0.1 = NV99: expected NV1 to NV18"),
        ("cost.launch = -1", "1: cost.launch = -1: expected microseconds from 0 to 1000000"),
        ("cost.launch = 2.5", "1: cost.launch = 2.5: expected microseconds"),
        ("cost.event_query = 1000001", "1: cost.event_query = 1000001: expected microseconds"),
        ("cost.memcpy = 1", "1: unknown key cost.memcpy"),
        ("lock.launch = stream", "1: lock.launch = stream: expected none, context or process"),
        ("lock.memcpy = context", "1: unknown key lock.memcpy"),
        ("hardware_queues = 33", "1: hardware_queues = 33: expected a number of queues from 0"),
        ("nvswitch = 12", "1: nvswitch = 12: expected 0 or 1"),
        ("numa.0 = 8", "1: numa.0 = 8: expected a NUMA node"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    profile = tmp_path / "wrong.profile"
    profile.write_text(text)
    with pytest.raises(fakegpu.FakeGpuError) as caught:
        fakegpu.gpus(profile)
    assert f"wrong.profile:{message}" in str(caught.value)


@pytest.mark.parametrize("name", ["V100", "V100x0", "V100x17", "B200x1", "x2"])
def test_a_name_that_is_no_profile_is_refused(name: str) -> None:
    with pytest.raises(fakegpu.FakeGpuError, match="expected a file, or MODELxN"):
        fakegpu.gpus(name)


def test_a_profile_names_its_own_state_folder(tmp_path: Path) -> None:
    profile = tmp_path / "own.profile"
    profile.write_text("model = V100\nstate = engine-state\n")
    fakegpu.stat("", profile)
    assert (tmp_path / "engine-state" / "engine").exists()
