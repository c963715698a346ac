"""Judges whether a cluster can have KubeShare, installed or not."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from kubeshare.api.types.constants import NAMESPACE, NVIDIA_DRA_DRIVER, WHOLE_GPU_RESOURCE
from kubeshare.api.types.core_v1 import resource_count
from kubeshare.install.checks.facts import Node, PlatformFacts
from kubeshare.install.checks.finding import Check, Verdict, fail, listed, ok, warn
from kubeshare.install.checks.webhooks import changes_own_kinds, changes_placeholders
from kubeshare.node.gpus.driver_version import too_old

OLDEST_KUBERNETES: Final = (1, 36)
GATES: Final = ("DRAConsumableCapacity", "DRAExtendedResource", "MutatingAdmissionPolicy")
"""Feature gates without which shares cannot be attached; on by default since that version."""

_OWN_PLURALS: Final = ("gpunodes", "gpuquotas", "sharepods", "shareusages", "vgpus")
_SKEW_SECONDS: Final = 5.0
_LEASE_SECONDS: Final = 60.0
"""Age of a kubelet's Lease, which it renews every 10 s, above which its clock is behind."""
_CDI_BY_DEFAULT: Final = {"containerd": (2, 0), "cri-o": (1, 28)}
_CDI_AT_ALL: Final = {"containerd": (1, 7), "cri-o": (1, 23)}
_LABEL_DRIVER: Final = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
_LABEL_STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
_LABEL_REPLICAS: Final = "nvidia.com/gpu.replicas"
_RENAMED: Final = f"{WHOLE_GPU_RESOURCE}.shared"
_MIG_PREFIX: Final = "nvidia.com/mig-"
_NVIDIA_HANDLER: Final = "nvidia"
VISIBLE_DEVICES: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
"""The setting of NVIDIA's container runtime by which every pod may choose GPUs by itself."""


def version_words(version: tuple[int, int]) -> str:
    """A version of Kubernetes as people write it."""
    return f"{version[0]}.{version[1]}"


def gpu_nodes(facts: PlatformFacts) -> list[Node]:
    """The nodes that have GPUs, whoever offers them."""
    by_claims = {each.spec.node_name for each in facts.slices if _offers_gpus(each.spec.driver)}
    reported = {each.metadata.name for each in facts.gpunodes if each.spec.devices}
    named = by_claims | reported
    return [node for node in facts.nodes if _gpus(node) or node.metadata.name in named]


def _kubernetes(facts: PlatformFacts) -> Verdict:
    version, oldest = facts.server.version, version_words(OLDEST_KUBERNETES)
    if (parsed := _parsed(version)) is None:
        return warn(
            f"the API server is of version {version or 'unknown'}",
            f"see that it is {oldest} or later",
        )
    if parsed < OLDEST_KUBERNETES:
        return fail(
            f"the API server is {version}: KubeShare needs Kubernetes {oldest} or later",
            f"upgrade the cluster to {oldest}",
        )
    return ok(f"the API server is {version}")


def _kinds(facts: PlatformFacts) -> Verdict:
    if facts.missing_kinds:
        return fail(
            f"this cluster has no {listed(facts.missing_kinds)}: KubeShare needs Kubernetes "
            f"{version_words(OLDEST_KUBERNETES)} or later with these kinds",
            "serve their API group: see --runtime-config of kube-apiserver",
        )
    return ok("all kinds that KubeShare uses are served")


def _gates(facts: PlatformFacts) -> Verdict:
    off = [name for name in GATES if facts.gates.get(name) is False]
    if off:
        setting = ",".join(f"{name}=true" for name in off)
        return fail(
            f"off in the API server: {listed(off)}",
            f"--feature-gates={setting} for kube-apiserver, kube-scheduler and kubelets",
        )
    known = [name for name in GATES if name in facts.gates]
    return ok(f"on: {listed(known)}" if known else "on by default in this version")


def _kubelets(facts: PlatformFacts) -> Verdict:
    nodes = gpu_nodes(facts)
    old = [
        f"{node.metadata.name} ({version})"
        for node in nodes
        if (parsed := _parsed(version := node.status.node_info.kubelet_version))
        and parsed < OLDEST_KUBERNETES
    ]
    if old:
        oldest = version_words(OLDEST_KUBERNETES)
        return fail(
            f"kubelets of nodes with GPUs are older than {oldest}: {listed(old)}",
            f"upgrade these kubelets to {oldest}",
        )
    return ok(f"those of {len(nodes)} nodes with GPUs are new enough")


def _runtimes(facts: PlatformFacts) -> Verdict:
    without, unsure = [], []
    for node in gpu_nodes(facts):
        text = node.status.node_info.container_runtime_version
        name, _, version = text.partition("://")
        entry, parsed = f"{node.metadata.name} ({text})", _parsed(version)
        if name not in _CDI_AT_ALL or parsed is None:
            unsure.append(entry)
        elif parsed < _CDI_AT_ALL[name]:
            without.append(entry)
        elif parsed < _CDI_BY_DEFAULT[name]:
            unsure.append(entry)
    if without:
        return fail(f"container runtimes know no CDI: {listed(without)}", "upgrade to containerd 2")
    if unsure:
        return warn(
            f"container runtimes may have CDI off: {listed(unsure)}",
            "run `kubeshare doctor --node` on these nodes",
        )
    return ok("those of nodes with GPUs have CDI")


def _gpus_offered(facts: PlatformFacts) -> Verdict:
    nodes = gpu_nodes(facts)
    if not nodes:
        return warn(
            "no node offers a GPU",
            "install NVIDIA's GPU operator, or its device plugin or DRA driver; nodes that an "
            "autoscaler adds count later",
        )
    return ok(f"{len(nodes)} nodes have GPUs")


def _plugin_mode(facts: PlatformFacts) -> Verdict:
    shared = [entry for node in facts.nodes for entry in _sharing(node)]
    if shared:
        return fail(
            f"GPUs are divided already, and only whole ones are shared: {listed(shared)}",
            "turn time-slicing, MPS or MIG of NVIDIA's device plugin off on these nodes "
            "(docs/nodes-and-gpus.md)",
        )
    return ok("NVIDIA's device plugin offers whole GPUs")


def _sharing(node: Node) -> Iterator[str]:
    labels, offered = node.metadata.labels, node.status.allocatable
    strategy, replicas = labels.get(_LABEL_STRATEGY, "none"), labels.get(_LABEL_REPLICAS, "1")
    mig = sorted(name for name in offered if name.startswith(_MIG_PREFIX))
    if strategy not in {"", "none"} or (replicas.isdigit() and int(replicas) > 1):
        yield f"{node.metadata.name} ({strategy}, {replicas} of each GPU)"
    elif resource_count(offered.get(_RENAMED, 0)):
        yield f"{node.metadata.name} ({_RENAMED})"
    elif any(resource_count(offered[name]) for name in mig):
        yield f"{node.metadata.name} ({mig[0]})"


def _drivers(facts: PlatformFacts) -> Verdict:
    versions = dict(_driver_versions(facts))
    old = [f"{node}: {why}" for node, version in versions.items() if (why := too_old(version))]
    if old:
        return fail(listed(old), "upgrade the driver of these nodes")
    if not versions:
        return ok("not reported by any node yet")
    return ok(f"those of {len(versions)} nodes are new enough")


def _driver_versions(facts: PlatformFacts) -> Iterator[tuple[str, str]]:
    for node in facts.nodes:
        for label in _LABEL_DRIVER:
            if version := node.metadata.labels.get(label):
                yield node.metadata.name, version
    for gpunode in facts.gpunodes:
        if gpunode.spec.driver_version:
            yield gpunode.metadata.name, gpunode.spec.driver_version


def _visible_devices(facts: PlatformFacts) -> Verdict:
    classes = sorted(
        name
        for name, handler in facts.runtime_classes.items()
        if handler.startswith(_NVIDIA_HANDLER)
    )
    if classes:
        return warn(
            f"pods that name the RuntimeClass {listed(classes)} get the GPUs of their variable "
            "NVIDIA_VISIBLE_DEVICES, unless the nodes forbid it",
            f"set {VISIBLE_DEVICES} = false in /etc/nvidia-container-runtime/config.toml of each "
            "node; `kubeshare doctor --node` sees it",
        )
    return ok("no RuntimeClass of NVIDIA; `kubeshare doctor --node` sees the default runtime")


def _webhooks(facts: PlatformFacts) -> Verdict:
    found = sorted(
        {
            str(webhook["configuration"])
            for webhook in facts.webhooks
            if changes_placeholders(webhook, facts.namespace_labels)
            or changes_own_kinds(webhook, _OWN_PLURALS)
        }
    )
    if found:
        return warn(
            f"may change pods in {NAMESPACE}, or KubeShare's objects: {listed(found)}",
            f"except the namespace: `kubectl edit mutatingwebhookconfiguration {found[0]}`, "
            f"namespaceSelector kubernetes.io/metadata.name NotIn [{NAMESPACE}]",
        )
    return ok("no mutating webhook gets what KubeShare writes")


def _clock(facts: PlatformFacts) -> Verdict:
    ahead, now = facts.server.ahead_seconds, facts.server.now
    if abs(ahead) > _SKEW_SECONDS:
        return warn(
            f"the API server's clock is {abs(ahead):.0f} s "
            f"{'ahead of' if ahead > 0 else 'behind'} this machine's",
            "synchronise both with a time server, such as by chrony",
        )
    wrong = [] if now is None else list(_wrong_clocks(facts, now))
    if wrong:
        return warn(
            f"clocks of nodes differ from the API server's, or their kubelets are away: "
            f"{listed(wrong)}",
            "see `kubectl get nodes`, and synchronise them with a time server",
        )
    return ok("API server, nodes and this machine agree")


def _wrong_clocks(facts: PlatformFacts, now: datetime) -> Iterator[str]:
    names = {node.metadata.name for node in facts.nodes}
    for lease in facts.node_leases:
        if lease.metadata.name in names and lease.spec.renew_time:
            ahead = (datetime.fromisoformat(lease.spec.renew_time) - now).total_seconds()
            if ahead > _SKEW_SECONDS or ahead < -_LEASE_SECONDS:
                yield f"{lease.metadata.name} ({ahead:+.0f} s)"


REQUIRED: Final = (
    Check("Kubernetes", ("server",), _kubernetes),
    Check("API kinds", ("missing_kinds",), _kinds),
    Check("feature gates", ("gates",), _gates),
)
"""What an installation cannot do without."""

PLATFORM: Final = (
    *REQUIRED,
    Check("GPUs", ("nodes", "slices"), _gpus_offered),
    Check("kubelets", ("nodes", "slices"), _kubelets),
    Check("container runtimes", ("nodes", "slices"), _runtimes),
    Check("GPU drivers", ("nodes",), _drivers),
    Check("device plugin", ("nodes",), _plugin_mode),
    Check("NVIDIA runtime", ("runtime_classes",), _visible_devices),
    Check("webhooks", ("webhooks",), _webhooks),
    Check("clocks", ("server", "nodes", "node_leases"), _clock),
)


def _parsed(version: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _gpus(node: Node) -> int:
    return resource_count(node.status.allocatable.get(WHOLE_GPU_RESOURCE, 0))


def _offers_gpus(driver: str) -> bool:
    return driver == NVIDIA_DRA_DRIVER


def gates_of(metrics: str) -> Mapping[str, bool]:
    """The feature gates in the metrics of a program of Kubernetes, and whether each is on."""
    lines = re.finditer(
        r'^kubernetes_feature_enabled\{[^}]*name="([^"]+)"[^}]*\} ([01])$', metrics, re.MULTILINE
    )
    return {found[1]: found[2] == "1" for found in lines}
