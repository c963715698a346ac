"""Writes the schema of the Helm chart's values from KubeShare's own types.

The settings of ``configuration`` are those that the programs read, so a key that they do not
know, or a value that they would not accept, is refused before anything is applied.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from kubeshare.api.configuration import Configuration
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.web.in_cluster.program import MOST_VIEWERS

ROOT: Final = Path(__file__).resolve().parents[1]
PATH: Final = ROOT / "deploy" / "chart" / "kubeshare" / "values.schema.json"

_UNUSED: Final = {"default", "title"}

Repository = Annotated[str, Meta(pattern=r"^([a-z0-9][A-Za-z0-9._/:-]*)?$", max_length=255)]
Tag = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]*)?$", max_length=128)]
Digest = Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")]
SecretName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
HostName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$", max_length=253)
]
Policy = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
Labels = dict[str, str]
Folder = Annotated[str, Meta(pattern=r"^/[^\s\"\\]*$", max_length=4096)]


class _Strict(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class Image(_Strict):
    """The image of all programs."""

    repository: Repository = ""
    tag: Tag = ""
    digest: Digest = ""


class Resources(_Strict):
    """Requests and limits of a container, merged with the defaults."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Toleration(_Strict):
    """As in ``spec.tolerations`` of a pod."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class Affinity(_Strict):
    """As in ``spec.affinity`` of a pod."""

    node_affinity: dict[str, Any] | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class Program(_Strict):
    """What of the pods of a program differs from the defaults."""

    resources: Resources = msgspec.field(default_factory=Resources)
    pod_labels: Labels = {}
    pod_annotations: dict[str, str] = {}
    tolerations: list[Toleration] = []
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    priority_class_name: str = ""


class Scheduler(Program):
    """The scheduler, and its placement policy."""

    policy: Policy = "locality"


class NodeAgent(Program):
    """The node agent, and what it does about processes that bypass the device library."""

    escapes: EscapePolicy = "report"


class Extender(Program):
    """The scheduler extender, and whether it is installed."""

    enabled: bool = False


class Web(Program):
    """The page in the cluster: whether it is installed, and how browsers reach it."""

    enabled: bool = False
    hosts: Annotated[list[HostName], Meta(max_length=16)] = []
    tls_secret: SecretName | Literal[""] = ""
    insecure_http: bool = msgspec.field(default=False, name="insecureHTTP")
    viewers: Annotated[int, Meta(ge=1, le=MOST_VIEWERS)] = 16


class Monitoring(_Strict):
    """Objects for Prometheus and Grafana."""

    pod_monitor: bool = False
    prometheus_rule: bool = False
    labels: Labels = {}
    dashboards: bool = False
    dashboard_labels: Labels = {}


class Peer(_Strict):
    """As in ``spec.ingress.from`` of a NetworkPolicy."""

    namespace_selector: dict[str, Any] | None = None
    pod_selector: dict[str, Any] | None = None
    ip_block: dict[str, Any] | None = None


class NetworkPolicy(_Strict):
    """Who reaches the metrics of the programs."""

    enabled: bool = False
    # A keyword of Python.
    peers: list[Peer] = msgspec.field(default=[], name="from")


class Values(_Strict):
    """The values of the chart."""

    image: Image = msgspec.field(default_factory=Image)
    image_pull_secrets: list[SecretName] = []
    driver_root: Folder = "/run/nvidia/driver"
    default_deny: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    configuration: Configuration = msgspec.field(default_factory=Configuration)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    device_manager: Program = msgspec.field(default_factory=Program)
    node_agent: NodeAgent = msgspec.field(default_factory=NodeAgent)
    token_daemon: Program = msgspec.field(default_factory=Program)
    extender: Extender = msgspec.field(default_factory=Extender)
    web: Web = msgspec.field(default_factory=Web)
    monitoring: Monitoring = msgspec.field(default_factory=Monitoring)
    network_policy: NetworkPolicy = msgspec.field(default_factory=NetworkPolicy)


def schema() -> str:
    """The text of ``values.schema.json``."""
    _, found = msgspec.json.schema_components([Values], ref_template="#/$defs/{name}")
    top = found.pop("Values")
    # Helm gives a chart that is part of another one these of its parent.
    top["properties"]["global"] = {"type": "object"}
    definitions = {name: _shortened(found[name]) for name in sorted(found)}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_shortened(top),
        "$defs": definitions,
    }
    return json.dumps(whole, indent=2) + "\n"


def _shortened(found: Any) -> Any:
    """A schema without what validates nothing, but for the first line of each description."""
    if isinstance(found, list):
        return [_shortened(each) for each in found]
    if not isinstance(found, dict):
        return found
    kept = {key: _shortened(value) for key, value in found.items() if key not in _UNUSED}
    if "properties" in found:
        kept["properties"] = {name: _shortened(each) for name, each in found["properties"].items()}
    if not kept.get("required"):
        kept.pop("required", None)
    if isinstance(kept.get("description"), str):
        kept["description"] = kept["description"].partition("\n")[0]
    return kept


def main() -> None:
    """Write the file."""
    PATH.write_text(schema())


if __name__ == "__main__":
    main()
