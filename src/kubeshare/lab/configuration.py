"""Writes configuration files of nodes and command lines of the control plane."""

import json
from pathlib import Path
from typing import Any

from kubeshare.lab.images.images import PAUSE_IMAGE
from kubeshare.lab.layout import DNS_IP, POD_CIDR, NodeLayout
from kubeshare.lab.requirements import CNI_FOLDER

_CONTAINERD = f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
# A machine without CAP_SYS_RESOURCE may not lower a score: sandboxes would not start.
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI_FOLDER}"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.nri.v1.nri"]
disable = true
"""


def containerd() -> str:
    """The node's ``/etc/containerd/config.toml``."""
    return _CONTAINERD


def cni(node: NodeLayout) -> str:
    """The node's pod network.

    A cable from each pod to the node rather than a bridge: everything is then
    routed, so that a Service's answer passes its node's address translation
    also where the machine does not pass bridged packets to netfilter.
    """
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": node.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    network = {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }
    return json.dumps(network, indent=2)


def kubelet(node: NodeLayout, authority: Path, certificate: Path, key: Path) -> dict[str, Any]:
    """The node's KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        # A new or lost GPU shows within this time; the default of 10 s is long for a test.
        "nodeStatusUpdateFrequency": "3s",
        # A pod whose claim could not be prepared is tried again after this time, for example
        # after a reboot, until the node agent is back; the default is a minute.
        "syncFrequency": "10s",
        # The nodes share this machine's disk, so none of them evicts pods for disk pressure.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


def kube_proxy(node: NodeLayout, kubeconfig: Path) -> dict[str, Any]:
    """The node's KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # The conntrack table is the machine's; the lab leaves its size alone.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def controller_manager_arguments(kubeconfig: Path, authority: Path, accounts: Path) -> list[str]:
    """The command line of kube-controller-manager."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={accounts}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
        # The default of 15 s is long for a test.
        "--horizontal-pod-autoscaler-sync-period=2s",
    ]


def scheduler_arguments(kubeconfig: Path) -> list[str]:
    """The command line of kube-scheduler."""
    return [
        "kube-scheduler",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    ]
