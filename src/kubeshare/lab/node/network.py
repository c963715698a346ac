"""The lab's network: a bridge, and a veth pair to each machine.

This machine's own network gets one interface with one address and nothing
else: no route but that of the interface, no rule, no setting.
"""

import ipaddress
import json
import subprocess
from typing import Any

from kubeshare.lab.errors import LabError
from kubeshare.lab.layout import BRIDGE, SERVICE_CIDR, Layout, NodeLayout
from kubeshare.lab.node.machine import Machine


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _interfaces() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_ip("-json", "address"))
    return found


def host_link_exists(layout: Layout) -> bool:
    """Whether this machine has the lab's interface."""
    return any(one["ifname"] == layout.host_link for one in _interfaces())


def check_range(layout: Layout) -> None:
    """Refuse a lab whose addresses this machine uses for something else.

    Raises:
        LabError: with the interface that has them.
    """
    wanted = ipaddress.ip_network(layout.network)
    for interface in _interfaces():
        for entry in interface["addr_info"]:
            address = ipaddress.ip_address(entry["local"])
            if interface["ifname"] != layout.host_link and address in wanted:
                raise LabError(
                    f"{interface['ifname']} of this machine has {address}, in the range "
                    f"{layout.network} of lab {layout.name}: give the lab another name",
                    exit_code=2,
                )


def set_up_control_plane(layout: Layout, machine: Machine) -> None:
    """Create the bridge and the veth pair to this machine, unless they exist."""
    script = f"""
        ip link set lo up
        ip link show {BRIDGE} >/dev/null 2>&1 || ip link add {BRIDGE} type bridge forward_delay 0
        ip address replace {layout.api_address}/24 dev {BRIDGE}
        ip link set {BRIDGE} up
        ip route replace {SERVICE_CIDR} dev {BRIDGE}
    """
    machine.run_in_network(script)
    if host_link_exists(layout):
        return
    init = machine.init()
    assert init is not None, "run() above would have refused"
    peer = ["type", "veth", "peer", "name", "host", "netns", str(init.pid)]
    _ip("link", "add", layout.host_link, *peer)
    _ip("address", "add", f"{layout.host_address}/24", "dev", layout.host_link)
    _ip("link", "set", layout.host_link, "up")
    machine.run_in_network(f"ip link set host master {BRIDGE} up")


def connect_node(
    node: NodeLayout, machine: Machine, control_plane: Machine, others: list[NodeLayout]
) -> None:
    """Connect a node to the bridge, with a route to every other node's pods."""
    init = machine.init()
    if init is None:
        raise LabError(f"{node.name} has just ended: `kubeshare lab up` again")
    cable = f"cable-{node.number}"
    control_plane.run_in_network(
        f"""
        ip link delete {cable} 2>/dev/null || true
        ip link add {cable} type veth peer name eth0 netns {init.pid}
        ip link set {cable} master {BRIDGE} up
        ip route replace {node.pod_cidr} via {node.address} dev {BRIDGE}
        """
    )
    routes = "\n".join(f"ip route replace {one.pod_cidr} via {one.address}" for one in others)
    machine.run_in_network(
        f"""
        ip link set lo up
        ip address replace {node.address}/24 dev eth0
        ip link set eth0 up
        ip route replace default via {node.lab.api_address}
        echo 1 > /proc/sys/net/ipv4/ip_forward
        {routes}
        """
    )


def remove_host_link(layout: Layout) -> None:
    """Remove this machine's interface of the lab, if it is there."""
    if host_link_exists(layout):
        _ip("link", "delete", layout.host_link)
