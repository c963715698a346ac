"""Describes a lab, for people and for scripts."""

from typing import Any

from kubeshare.lab.cluster import Lab
from kubeshare.lab.errors import LabError


def describe(lab: Lab) -> dict[str, Any]:
    """Describe a lab as plain data.

    Returns:
        ``name``, ``folder``, ``kubeconfig``, ``components`` with their pids
        (None: does not run), ``nodes`` with ``ready``, and ``healthy``: whether
        all of it runs and is ready.
    """
    components = {one.name: one.pid for one in lab.components()}
    try:
        ready = lab.ready_nodes()
    except LabError:
        ready = set()
    nodes = [
        {
            "name": node.name,
            "address": node.layout.address,
            "gpus": node.profile,
            "ready": node.name in ready,
        }
        for node in lab.nodes
    ]
    return {
        "name": lab.name,
        "folder": str(lab.layout.folder),
        "kubeconfig": str(lab.kubeconfig),
        "components": components,
        "nodes": nodes,
        "healthy": bool(nodes)
        and all(node["ready"] for node in nodes)
        and None not in components.values(),
    }


def render(described: dict[str, Any]) -> str:
    """Render a description as a few aligned lines."""
    lines = [
        f"lab {described['name']}: {'healthy' if described['healthy'] else 'not healthy'}",
        f"  kubeconfig {described['kubeconfig']}",
    ]
    lines += [
        f"  {node['name']:<34} {'ready' if node['ready'] else 'NOT READY':<10} "
        f"{node['address']}  {node['gpus']}"
        for node in described["nodes"]
    ]
    lines += [
        f"  {name:<34} {f'pid {pid}' if pid else 'DOES NOT RUN'}"
        for name, pid in described["components"].items()
    ]
    return "\n".join(lines)
