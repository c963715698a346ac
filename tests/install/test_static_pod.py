"""The manifest of kubeadm's kube-scheduler gets a configuration file, and keeps the rest."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshare.cli.main import main
from kubeshare.core.errors import InvalidValueError
from kubeshare.install.static_pod import CONFIGURATION, with_configuration

Raw = dict[str, Any]

# In the form of kubeadm, without probes and resources.
MANIFEST: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
    "spec": {
        "containers": [
            {
                "name": "kube-scheduler",
                "image": "registry.k8s.io/kube-scheduler:v1.36.3",
                "command": ["kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf"],
                "volumeMounts": [
                    {"name": "kubeconfig", "mountPath": "/etc/kubernetes/scheduler.conf"}
                ],
            }
        ],
        "hostNetwork": True,
        "volumes": [{"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/scheduler.conf"}}],
    },
}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest in a file."""
    path = tmp_path / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    return path


def test_the_configuration_is_mounted_and_named_and_nothing_else_changes() -> None:
    changed = with_configuration(MANIFEST)
    [container] = changed["spec"]["containers"]
    assert container["command"].pop() == f"--config={CONFIGURATION}"
    mount = container["volumeMounts"].pop()
    volume = changed["spec"]["volumes"].pop()
    assert mount == {"name": volume["name"], "mountPath": CONFIGURATION, "readOnly": True}
    assert volume["hostPath"] == {"path": CONFIGURATION, "type": "File"}
    assert changed == MANIFEST


def test_once_more_changes_nothing() -> None:
    once = with_configuration(MANIFEST)
    assert with_configuration(once) == once


def test_another_configuration_is_not_replaced() -> None:
    changed = with_configuration(MANIFEST, "/etc/mine.yaml")
    with pytest.raises(InvalidValueError, match=r"--config=/etc/mine\.yaml already"):
        with_configuration(changed)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (None, "is no Pod"),
        ([MANIFEST], "is no Pod"),
        (MANIFEST | {"kind": "Deployment"}, "is no Pod"),
        (MANIFEST | {"spec": {"containers": [{"name": "etcd"}]}}, "no container kube-scheduler"),
        (MANIFEST | {"spec": {"containers": ["kube-scheduler"]}}, "no container kube-scheduler"),
    ],
)
def test_what_is_no_such_manifest_is_refused(other: object, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        with_configuration(other)


def test_the_command_prints_it_and_writes_nothing(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = manifest.read_text()
    assert main(["extender", "static-pod", str(manifest)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == with_configuration(MANIFEST)
    assert manifest.read_text() == before
    assert [each.name for each in manifest.parent.iterdir()] == [manifest.name]


def test_the_command_writes_the_file_that_it_is_told(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest.chmod(0o640)
    options = ["--config", "/etc/mine.yaml", "-o", str(manifest)]
    assert main(["extender", "static-pod", str(manifest), *options]) == 0
    assert "Next: kubectl" in capsys.readouterr().out
    expected = with_configuration(MANIFEST, "/etc/mine.yaml")
    assert yaml.safe_load(manifest.read_text()) == expected
    assert manifest.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in manifest.parent.iterdir()] == [manifest.name]


@pytest.mark.parametrize("text", ["{", "a: [", "kind: Pod"])
def test_a_wrong_manifest_is_one_line_and_exit_code_2(
    text: str, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest.write_text(text)
    assert main(["extender", "static-pod", str(manifest), "-o", str(manifest)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert manifest.read_text() == text
