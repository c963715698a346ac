"""What a node lacks is found in its files."""

from pathlib import Path

import pytest
import yaml

from kubeshare.install.checks.container_runtime import containerd_config
from kubeshare.install.checks.finding import Finding, Level, run
from kubeshare.install.checks.node import NODE
from kubeshare.install.checks.node_reader import read_node

UUID = "GPU-8a6d1b2c-0000-0000-0000-000000000001"
NVIDIA_DEFAULT = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "gpu"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpu.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
ACCEPTS = "#accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
REFUSES = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with all that it needs before KubeShare is installed."""
    put(tmp_path, "proc/driver/nvidia/version", driver("550.54.14"))
    put(tmp_path, "proc/driver/nvidia/gpus/0000:01/information", f"GPU UUID: \t {UUID}\n")
    spec = {"kind": "nvidia.com/gpu", "devices": [{"name": UUID}]}
    put(tmp_path, "etc/cdi/nvidia.yaml", yaml.safe_dump(spec))
    put(tmp_path, "etc/containerd/config.toml", "version = 3\n")
    put(tmp_path, "var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
    put(tmp_path, "var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")
    return tmp_path


def driver(version: str) -> str:
    return f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def judged(root: Path) -> dict[str, Finding]:
    facts = read_node(root)
    return {each.check: each for each in run(NODE, facts, facts.unread)}


def bad(root: Path) -> list[tuple[str, Level]]:
    return [(name, each.level) for name, each in judged(root).items() if each.level is not Level.OK]


def test_a_node_that_has_all_is_fine(root: Path) -> None:
    assert bad(root) == []
    assert "nvidia-gpu.sock" in judged(root)["device plugins"].seen


@pytest.mark.parametrize(
    ("check", "level", "seen", "file", "text"),
    [
        ("driver", "fail", "470.82.01", "proc/driver/nvidia/version", driver("470.82.01")),
        ("CDI specs", "fail", UUID, "etc/cdi/nvidia.yaml", "{kind: a/b, devices: [{name: all}]}"),
        ("containerd", "warn", "version 2", "etc/containerd/config.toml", "version = 2\n"),
        (
            "containerd",
            "fail",
            "enable_cdi is false",
            "etc/containerd/config.toml",
            'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n',
        ),
        (
            "kubelet",
            "fail",
            "DRAExtendedResource",
            "var/lib/kubelet/config.yaml",
            "featureGates: {DRAExtendedResource: false}",
        ),
        (
            "NVIDIA runtime",
            "warn",
            "RuntimeClass",
            "etc/nvidia-container-runtime/config.toml",
            ACCEPTS,
        ),
        ("kubelet", "warn", "could not be read", "var/lib/kubelet/config.yaml", "a: [\n"),
    ],
)
def test_each_lack_is_one_finding(  # noqa: PLR0917 - its columns
    root: Path, check: str, level: str, seen: str, file: str, text: str
) -> None:
    put(root, file, text)
    assert bad(root) == [(check, level)]
    assert seen in judged(root)[check].seen
    assert judged(root)[check].fix


def test_a_default_runtime_that_gives_gpus_by_a_variable_fails(root: Path) -> None:
    put(root, "etc/containerd/config.toml", NVIDIA_DEFAULT)
    put(root, "etc/nvidia-container-runtime/config.toml", ACCEPTS)
    assert bad(root) == [("NVIDIA runtime", Level.FAIL)]

    put(root, "etc/nvidia-container-runtime/config.toml", REFUSES)
    assert bad(root) == []


def test_what_containerd_imports_wins(root: Path) -> None:
    put(root, "etc/containerd/config.toml", 'version = 2\nimports = ["/etc/containerd/conf.d/*"]\n')
    put(root, "etc/containerd/conf.d/10.toml", NVIDIA_DEFAULT)
    assert bad(root) == []


def test_what_is_no_table_in_a_configuration_is_passed_over() -> None:
    assert containerd_config(['plugins = 3\nversion = "x"\n']).has_cdi is None


def test_a_node_where_nothing_is_names_what_it_lacks(tmp_path: Path) -> None:
    found = dict(bad(tmp_path))
    assert found == {
        "driver": Level.WARN,
        "CDI specs": Level.FAIL,
        "containerd": Level.WARN,
        "device plugins": Level.WARN,
    }
