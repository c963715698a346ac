"""Builds API objects as JSON, as a client sends them to the API server.

Names and amounts have defaults, so that a test names only what it is about.
``fakes.objects`` builds the same objects in the form in which the programs decode them.
"""

from typing import Any

Raw = dict[str, Any]

GIB = 1 << 30


def sharepod(
    name: str = "a",
    gpu: Raw | None = None,
    *,
    metadata: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A SharePod with one container; ``gpu`` is its ``spec.gpu``, if it has one."""
    containers = [{"name": "main", "image": "train:1"}]
    known: Raw = {"containers": containers} | ({} if gpu is None else {"gpu": gpu})
    return _object("kubeshare.nthu/v1", "SharePod", name, metadata) | {"spec": known | spec}


def pod(
    name: str = "a",
    limits: dict[str, str] | None = None,
    *,
    metadata: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A pod with one container that has these limits."""
    container: Raw = {"name": "main", "image": "train:1"}
    if limits:
        container["resources"] = {"limits": limits}
    known = {"containers": [container]}
    return _object("v1", "Pod", name, metadata) | {"spec": known | spec}


def vgpu(
    name: str = "x",
    node_name: str = "n1",
    *holders: Raw,
    phase: str = "",
    **spec: Any,
) -> Raw:
    """A vGPU of 16 GiB with these holders; without a phase, nobody has reconciled it."""
    status: Raw = {"phase": phase} if phase else {}
    if holders:
        status["holders"] = list(holders)
    known = {"nodeName": node_name, "memoryBytes": 16 * GIB}
    return _object("kubeshare.nthu/v1", "VGPU", name) | {"spec": known | spec, "status": status}


def holder(demand: str, name: str = "a", **fields: Any) -> Raw:
    """A holder of a vGPU for a demand, by its uid; the least amounts unless given."""
    amounts = {"requestMicros": 1, "limitMicros": 1, "memoryBytes": 1}
    identity = {"demand": demand, "namespace": "default", "name": name}
    return identity | {"podUid": "", "container": ""} | amounts | fields


def _object(version: str, kind: str, name: str, metadata: Raw | None = None) -> Raw:
    known: Raw = {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": known | (metadata or {})}
