"""Loads the manifests of the chart in the order of their application."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from kubeshare import __version__
from kubeshare.api.types.constants import (
    ALLOWED,
    DEFAULT_NAMESPACE,
    GROUP,
    LABEL_SHARES,
    NAMESPACE,
)
from kubeshare.core.errors import InvalidValueError
from kubeshare.install.readiness import WORKLOADS
from kubeshare.kube import resources
from kubeshare.kube.resources import Resource

Manifest = dict[str, Any]

# Each group depends on those before it: policies and programs use kinds that must exist.
_FOLDERS = ("crds", "policies", "programs", "rbac")
_MANIFESTS = "deploy/chart/kubeshare/manifests"
_EXTENDER = "extender"
_NAMESPACES = "namespaces"
MAX_SHAREPODS = 512
"""The SharePods that a namespace of ``Options.only_namespaces`` may have: as ``gangMembers``."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEFAULT_IMAGE = "kubeshare:dev"
_NAMESPACE = re.compile(r"(?!kube-|default$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DRIVER_ROOT_VOLUME = "driver-root"
_PART_OF = "app.kubernetes.io/part-of"
_LABELS = {
    "app.kubernetes.io/name": "kubeshare",
    "app.kubernetes.io/instance": "kubeshare",
    "app.kubernetes.io/version": __version__.replace("+", "_"),
    "app.kubernetes.io/managed-by": "kubeshare",
}
"""Labels of every object beside part-of and component, as in a release of the chart."""
_KINDS: dict[tuple[str, str], Resource[Manifest]] = {
    (f"{resource.group}/{resource.version}".lstrip("/"), resource.kind): resource
    for resource in vars(resources).values()
    if isinstance(resource, Resource)
}


class ManifestError(Exception):
    """The manifests cannot be used; the message says which file and why."""

    exit_code = 3


class Options(Struct, frozen=True, kw_only=True):
    """What differs between clusters.

    Args:
        namespace: where the programs run; by default that of all commands and programs.
        image: the image of all programs.
        driver_root: the folder of a node under which the GPU driver is installed:
            ``/run/nvidia/driver`` (GPU operator) or ``/`` (driver on the host).
        extender: whether to install the scheduler extender.
        only_namespaces: the namespaces that may use shares, besides those that administrators
            allow themselves; None if all may.
    """

    namespace: str = NAMESPACE
    image: str = _DEFAULT_IMAGE
    driver_root: str = "/run/nvidia/driver"
    extender: bool = False
    only_namespaces: tuple[str, ...] | None = None


def manifest_folder() -> Path:
    """Where the manifests are: beside the sources, or within the installed package.

    Raises:
        ManifestError: neither place has them.
    """
    here = Path(__file__).resolve()
    for root in (here.parents[3], here.parents[1]):
        if (candidate := root / _MANIFESTS).is_dir():
            return candidate
    raise ManifestError(f"{_MANIFESTS} is missing: run this from a clone of the repository")


def load(options: Options, folder: Path | None = None) -> list[Manifest]:
    """All manifests, fitted to a cluster, in the order in which to apply them.

    Args:
        options: what differs between clusters.
        folder: by default ``manifest_folder()``.

    Raises:
        InvalidValueError: KubeShare cannot have this namespace.
        ManifestError: a file is not YAML, or has an object that is not known here.
    """
    if not _NAMESPACE.fullmatch(options.namespace):
        raise InvalidValueError(
            "KUBESHARE_NAMESPACE",
            f"{options.namespace!r} cannot be KubeShare's own namespace: that is a DNS label, "
            "not default, and does not begin with kube-",
        )
    folder = folder or manifest_folder()
    optional = {_EXTENDER: options.extender, _NAMESPACES: options.only_namespaces is not None}
    found = [
        document
        for group in (*_FOLDERS, *(group for group, wanted in optional.items() if wanted))
        for path in sorted((folder / group).glob("*.yaml"))
        for document in _documents(path, options.namespace)
    ]
    for namespace in options.only_namespaces or ():
        found += _allowed(namespace)
    # Namespaces, accounts and classes before what refers to them.
    found.sort(key=lambda manifest: _rank(manifest["kind"]))
    return [_fit(manifest, options) for manifest in found]


def resource_of(manifest: Manifest) -> Resource[Manifest]:
    """The API resource of a manifest.

    Raises:
        ManifestError: a kind that KubeShare does not install.
    """
    version, kind = manifest.get("apiVersion", ""), manifest.get("kind", "")
    try:
        return _KINDS[version, kind]
    except KeyError:
        raise ManifestError(f"no manifest of ours has apiVersion {version}, kind {kind}") from None


def _allowed(namespace: str) -> list[Manifest]:
    """A namespace that may use shares, with a bounded number of SharePods."""
    ours = {_PART_OF: "kubeshare", "app.kubernetes.io/component": "quota"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {LABEL_SHARES: ALLOWED}},
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "kubeshare", "namespace": namespace, "labels": ours},
            "spec": {"hard": {f"count/sharepods.{GROUP}": str(MAX_SHAREPODS)}},
        },
    ]


def _documents(path: Path, namespace: str) -> Iterator[Manifest]:
    try:
        # Rules of policies name it as well, so it is replaced wherever it stands.
        text = path.read_text().replace(DEFAULT_NAMESPACE, namespace)
        loaded = list(yaml.load_all(text, Loader=_LOADER))
    except (OSError, yaml.YAMLError) as error:
        raise ManifestError(f"{path}: {error}") from error
    for document in loaded:
        resource_of(document)
        yield document


def _rank(kind: str) -> int:
    order = (
        "Namespace",
        "CustomResourceDefinition",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "FlowSchema",
        "DeviceClass",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    )
    return order.index(kind) if kind in order else len(order)


def _fit(manifest: Manifest, options: Options) -> Manifest:
    _label(manifest["metadata"])
    if manifest["kind"] not in WORKLOADS:
        return manifest
    _label(manifest["spec"]["template"]["metadata"])
    pod = manifest["spec"]["template"]["spec"]
    for container in pod["containers"]:
        if container["image"] == _DEFAULT_IMAGE:
            container["image"] = options.image
        container["command"] = [
            options.image if word == _DEFAULT_IMAGE else word for word in container["command"]
        ]
    for volume in pod.get("volumes", []):
        if volume["name"] == _DRIVER_ROOT_VOLUME:
            volume["hostPath"]["path"] = options.driver_root
    return manifest


def _label(metadata: dict[str, Any]) -> None:
    """Add the common labels, but not to a namespace of users, nor to a selector with an alias."""
    if _PART_OF in metadata["labels"]:
        metadata["labels"] = metadata["labels"] | _LABELS
