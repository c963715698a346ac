"""Writes kubeconfig files."""

import base64
from pathlib import Path

import yaml

from kubeshare.lab.control_plane.certificates import KeyPair
from kubeshare.lab.files import replace


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def kubeconfig(name: str, server: str, authority: Path, user: KeyPair) -> str:
    """A kubeconfig with everything inline, so that it may be copied anywhere.

    Args:
        name: of cluster, user and context.
        server: for example ``https://127.0.0.1:6443``.
        authority: the certificate authority's PEM file.
        user: certificate and key of the one who calls.
    """
    credentials = {
        "client-certificate-data": _inline(user.certificate),
        "client-key-data": _inline(user.key),
    }
    cluster = {"server": server, "certificate-authority-data": _inline(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_kubeconfig(path: Path, name: str, server: str, authority: Path, user: KeyPair) -> Path:
    """Write :func:`kubeconfig` by rename, readable by its owner only; return its path."""
    return replace(path, kubeconfig(name, server, authority, user), 0o600)
