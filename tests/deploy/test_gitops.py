"""The chart suits tools that render it again and again and compare the cluster with it."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tools.release import install_yaml

from deploy.helm import CHART, IMAGE, Helm, hook_of
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.slow

Raw = dict[str, Any]
ALL: Final[Raw] = {
    "image": IMAGE,
    "extender": {"enabled": True},
    "web": {"enabled": True, "hosts": ["a.example"], "insecureHTTP": True},
    "defaultDeny": True,
    "configuration": {"gangMembers": 7},
    "imagePullSecrets": ["a"],
    "monitoring": {"dashboards": True},
    "networkPolicy": {"enabled": True},
}
CHANGES_BY_ITSELF: Final = re.compile(
    r"\b(rand\w+|shuffle|uuidv4|gen(CA|SelfSigned\w+|Signed\w+|PrivateKey)|derivePassword|"
    r"htpasswd|bcrypt|now|date\w*|ago|env|expandenv|getHostByName|lookup)\b|"
    r"\.Release\.(Revision|IsUpgrade|IsInstall)|\.Capabilities"
)
"""What gives another text each time, at each place, or in each cluster."""
KNOWN_HOOKS: Final = {"pre-delete", "pre-upgrade", "pre-rollback", "test"}
"""Argo CD runs the first before it deletes an application and the second before each sync, and
ignores the others; Flux runs all, as Helm does."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(binaries.helm(Progress()), tmp_path_factory.mktemp("helm"))


def render(helm: Helm, *options: str) -> str:
    return helm("template", "r", str(CHART), "--namespace", NAMESPACE, *options, values=ALL)


def test_the_same_values_give_the_same_text_at_any_time_and_for_any_operation(helm: Helm) -> None:
    text = render(helm)
    assert render(helm, "--is-upgrade") == text
    assert render(helm, "--kube-version", "v1.40.0") == text


def test_no_template_uses_what_changes_by_itself() -> None:
    found = {
        (file.name, match[0])
        for file in (CHART / "templates").iterdir()
        for action in re.findall(r"\{\{-?(?! ?/\*)(.*?)-?\}\}", file.read_text(), re.DOTALL)
        for match in CHANGES_BY_ITSELF.finditer(re.sub(r'"[^"]*"', '""', action))
    }
    # The former only refuses a second release; the latter is a text for people, no object.
    assert found == {("_helpers.tpl", "lookup"), ("NOTES.txt", "lookup")}


def test_hooks_are_known_have_fixed_names_and_may_run_at_each_sync(helm: Helm) -> None:
    objects = [one for one in yaml.safe_load_all(render(helm)) if one]
    hooks = [one for one in objects if hook_of(one)]
    assert {part for one in hooks for part in hook_of(one).split(",")} == KNOWN_HOOKS
    for one in hooks:
        metadata = one["metadata"]
        assert "generateName" not in metadata
        policy = metadata["annotations"]["helm.sh/hook-delete-policy"].split(",")
        # Without it a tool that applies the Job of the next sync finds one that has ended.
        assert "before-hook-creation" in policy, metadata["name"]
        weight = int(metadata["annotations"]["helm.sh/hook-weight"])
        assert (weight == 0) == (one["kind"] == "Job"), "its account and rights come before it"
    assert not [one for one in objects if "generateName" in one["metadata"]]


def test_kinds_are_objects_of_the_release_that_stay_when_it_goes(helm: Helm) -> None:
    kinds = [
        one
        for one in yaml.safe_load_all(render(helm))
        if one and one["kind"] == "CustomResourceDefinition"
    ]
    assert len(kinds) == 5
    for one in kinds:
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not (CHART / "crds").exists(), "Helm never upgrades what is there"


def test_selectors_do_not_have_the_label_that_argo_cd_writes(helm: Helm) -> None:
    for one in yaml.safe_load_all(render(helm)):
        for selector in selectors(one):
            assert "app.kubernetes.io/instance" not in json.dumps(selector), one["metadata"]["name"]


def selectors(value: Any) -> Iterator[Any]:
    """All selectors in an object, however deep."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name.lower().endswith("selector"):
                yield each
            yield from selectors(each)
    elif isinstance(value, list):
        for each in value:
            yield from selectors(each)


def test_kustomize_puts_an_image_in_all_places_as_the_page_says(tmp_path: Path) -> None:
    page = (CHART.parents[2] / "docs" / "install.md").read_text()
    _, _, rest = page.partition('```yaml title="kustomization.yaml"\n')
    (tmp_path / "kustomization.yaml").write_text(rest.partition("```")[0])
    (tmp_path / "install.yaml").write_text(install_yaml("kubeshare:0.1.0"))
    programs = binaries.kubernetes(Progress())
    built = subprocess.check_output([programs / "kubectl", "kustomize", tmp_path], text=True)
    objects = [one for one in yaml.safe_load_all(built) if one]
    assert len(objects) == len(list(yaml.safe_load_all(install_yaml("kubeshare:0.1.0"))))
    assert built.count("YOUR/kubeshare:0.1.0") == 5
    assert " kubeshare:" not in built.replace("YOUR/kubeshare:", "")


@pytest.mark.apiserver
def test_what_the_api_server_stores_is_what_was_rendered(helm: Helm, system: ApiServer) -> None:
    """Or a tool would find a difference that no sync takes away."""
    rendered = [one for one in yaml.safe_load_all(render(helm)) if one and not hook_of(one)]
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json")
    answer = system.kubectl(*command, "-f", "-", stdin=yaml.safe_dump_all(rendered))
    stored = json.loads(answer)["items"]
    assert len(stored) == len(rendered) > 80
    found = [
        f"{wanted['kind']} {wanted['metadata']['name']}{difference}"
        for wanted, got in zip(rendered, stored, strict=True)
        for difference in differences(wanted, got)
    ]
    assert found == []


def differences(wanted: Any, got: Any, path: str = "") -> Iterator[str]:
    """Where a stored value is not the one that was given; defaults beside it are none."""
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        for name, value in wanted.items():
            if name not in got:
                yield f"{path}.{name}: {value!r} is not stored"
            else:
                yield from differences(value, got[name], f"{path}.{name}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for number, pair in enumerate(zip(wanted, got, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif wanted != got:
        yield f"{path}: {wanted!r} is stored as {got!r}"
