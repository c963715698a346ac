"""Translates a legacy kube-scheduler Policy into a KubeSchedulerConfiguration.

Kubernetes read Policy files until version 1.22. Of such a file, the extenders are translated:
their fields have the same meaning in ``kubescheduler.config.k8s.io/v1`` under nearly the same
names. Predicates and priorities were replaced by plugins with other parameters; they are named,
and left to a person. Source: the types of k8s.io/kube-scheduler 0.22 (``config/v1``) and of the
present ``config/v1``.
"""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.share_fields import mapping

MAX_EXTENDERS: Final = 64
"""Extenders of one file."""

_SAME: Final = (
    *("urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb"),
    *("nodeCacheCapable", "ignorable"),
)
_TLS: Final = ("insecure", "serverName", "certFile", "keyFile", "caFile")
_TLS_DATA: Final = ("certData", "keyData", "caData")
_MANAGED: Final = ("name", "ignoredByScheduler")
_NANOSECONDS: Final = 1_000_000_000


def configuration_of(policy: object) -> tuple[dict[str, Any], list[str]]:
    """Translate a Policy.

    Args:
        policy: the decoded file.

    Returns:
        the KubeSchedulerConfiguration, and what could not be translated: the name of each field
        and why.

    Raises:
        InvalidValueError: it is no Policy, or a field has another form.
    """
    fields = mapping(policy, "Policy")
    if fields.get("kind") != "Policy":
        raise InvalidValueError("kind", f'is "{fields.get("kind", "")}" and not "Policy"')
    extenders = fields.get("extenders", fields.get("extenderConfigs")) or ()
    if not isinstance(extenders, list | tuple) or len(extenders) > MAX_EXTENDERS:
        raise InvalidValueError("extenders", f"is no list of at most {MAX_EXTENDERS} extenders")
    left: list[str] = []
    translated = [
        _extender(mapping(extender, f"extenders[{at}]"), f"extenders[{at}]", left)
        for at, extender in enumerate(extenders)
    ]
    others = sorted(fields.keys() - {"kind", "apiVersion", "extenders", "extenderConfigs"})
    left += [f"{key}: is set by plugins of a profile now" for key in others if fields[key]]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "extenders": translated,
    }, left


def _extender(fields: Mapping[str, Any], name: str, left: list[str]) -> dict[str, Any]:
    known = {*_SAME, "enableHttps", "enableHTTPS", "tlsConfig", "httpTimeout", "managedResources"}
    left += [f"{name}.{key}: is no field of an extender" for key in sorted(fields.keys() - known)]
    if not isinstance(fields.get("urlPrefix"), str):
        raise InvalidValueError(f"{name}.urlPrefix", "is missing, or no text")
    found = {key: fields[key] for key in _SAME if fields.get(key) not in (None, "")}
    found["enableHTTPS"] = bool(fields.get("enableHttps", fields.get("enableHTTPS", False)))
    if tls := mapping(fields.get("tlsConfig"), f"{name}.tlsConfig"):
        found["tlsConfig"] = {key: tls[key] for key in (*_TLS, *_TLS_DATA) if key in tls}
    if timeout := fields.get("httpTimeout"):
        found["httpTimeout"] = _duration(timeout, f"{name}.httpTimeout")
    if resources := fields.get("managedResources"):
        found["managedResources"] = _managed(resources, f"{name}.managedResources")
    return found


def _managed(resources: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(resources, list):
        raise InvalidValueError(name, "is no list")
    listed = [mapping(each, f"{name}[{at}]") for at, each in enumerate(resources)]
    return [{key: each[key] for key in _MANAGED if key in each} for each in listed]


def _duration(value: object, field: str) -> str:
    """A duration as text; a Policy has nanoseconds, in JSON as a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(field, f"{value!r} is no number of nanoseconds")
    seconds, rest = divmod(value, _NANOSECONDS)
    return f"{seconds}s" if not rest else f"{value}ns"
