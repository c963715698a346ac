"""What the page about monitoring applies for the Prometheus Operator, on a real API server."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
COMMANDS = re.findall(r"```console\n\$ kubectl ([^\n]*)\n(.*?)```", PAGE, flags=re.DOTALL)

TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}


def listed(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


# The fields of the operator's kinds that a monitor and a rule of ours may have.
KINDS = {
    "PodMonitor": {
        "selector": {"type": "object", "properties": {"matchLabels": TEXTS}},
        "podMetricsEndpoints": listed(
            port=TEXT,
            interval=TEXT,
            honorLabels={"type": "boolean"},
            relabelings=listed(
                sourceLabels={"type": "array", "items": TEXT}, targetLabel=TEXT, replacement=TEXT
            ),
        ),
    },
    "PrometheusRule": {
        "groups": listed(
            name=TEXT,
            rules=listed(
                alert=TEXT,
                record=TEXT,
                expr=TEXT,
                labels=TEXTS,
                annotations=TEXTS,
                **{"for": TEXT},
            ),
        )
    },
}


def definition(kind: str) -> dict[str, Any]:
    """A CRD that refuses fields which the operator's does not have."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": KINDS[kind]}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def are_served(apiserver: ApiServer) -> bool:
    try:
        apiserver.kubectl("get", "podmonitors,prometheusrules", "-A")
    except LabError:
        return False
    return True


@pytest.fixture
def operators(apiserver: ApiServer) -> Iterator[ApiServer]:
    """The API server with the operator's kinds, and with KubeShare's namespace."""
    objects = [definition(kind) for kind in KINDS]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([*objects, namespace]))
    wait_until(lambda: are_served(apiserver), "the operator's kinds to be served")
    yield apiserver
    apiserver.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(objects))


def test_the_commands_for_the_operator_print_what_the_page_shows(operators: ApiServer) -> None:
    assert len(COMMANDS) == 2
    for command, shown in COMMANDS:
        arguments = shlex.split(command.replace("deploy/", f"{ROOT}/deploy/"))
        assert operators.kubectl(*arguments) == shown
    rule = yaml.safe_load(
        operators.kubectl("get", "prometheusrule", "kubeshare", "-n", NAMESPACE, "-o", "yaml")
    )
    names = [group["name"] for group in rule["spec"]["groups"]]
    assert names == [
        "kubeshare.programs",
        "kubeshare.gpus",
        "kubeshare.demand",
        "kubeshare.recording",
    ]
