"""Lets the kube-scheduler of kubeadm, a static pod, read a configuration."""

import copy
from typing import Any, Final

from kubeshare.core.errors import InvalidValueError

CONFIGURATION: Final = "/etc/kubernetes/kube-scheduler.yaml"
"""Where the configuration lies on each control-plane node, and in the container."""
_NAME: Final = "kube-scheduler"
_OPTION: Final = "--config"
_VOLUME: Final = "kubeshare-config"

Manifest = dict[str, Any]


def with_configuration(manifest: object, path: str = CONFIGURATION) -> Manifest:
    """The manifest of kube-scheduler with a configuration file; once more changes nothing.

    Args:
        manifest: as kubeadm has written it.
        path: the configuration on the node, absolute.

    Raises:
        InvalidValueError: it is no such manifest, or it has another configuration.
    """
    changed: Manifest = copy.deepcopy(_checked(manifest))
    container = _container(changed)
    option = f"{_OPTION}={path}"
    given = [word for word in container["command"] if str(word).partition("=")[0] == _OPTION]
    if given and given != [option]:
        message = f"has {given[0]} already: add the extender to that configuration"
        raise InvalidValueError(f"the command of {_NAME}", message)
    if not given:
        container["command"].append(option)
    mount = {"name": _VOLUME, "mountPath": path, "readOnly": True}
    volume = {"name": _VOLUME, "hostPath": {"path": path, "type": "File"}}
    _set(container, "volumeMounts", mount)
    _set(changed["spec"], "volumes", volume)
    return changed


def _checked(manifest: object) -> Manifest:
    is_pod = isinstance(manifest, dict) and manifest.get("kind") == "Pod"
    if not isinstance(manifest, dict) or not is_pod or not isinstance(manifest.get("spec"), dict):
        raise InvalidValueError("the manifest", "is no Pod")
    return manifest


def _container(manifest: Manifest) -> Manifest:
    found: list[Manifest] = [
        each for each in manifest["spec"].get("containers") or () if _runs_scheduler(each)
    ]
    if len(found) != 1:
        message = f"has no container {_NAME} with a command: is it kubeadm's kube-scheduler.yaml?"
        raise InvalidValueError("the manifest", message)
    return found[0]


def _runs_scheduler(container: object) -> bool:
    return (
        isinstance(container, dict)
        and container.get("name") == _NAME
        and isinstance(container.get("command"), list)
    )


def _set(owner: Manifest, field: str, wanted: Manifest) -> None:
    """Add an element to a list, in place of the one of that name."""
    others = [each for each in owner.get(field) or () if each.get("name") != wanted["name"]]
    owner[field] = [*others, wanted]
