"""Judges whether a node can attach shares."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install.checks.container_runtime import ContainerdConfig
from kubeshare.install.checks.finding import Check, Verdict, fail, listed, ok, warn
from kubeshare.install.checks.platform import GATES, VISIBLE_DEVICES
from kubeshare.node.gpus.driver_version import too_old

_AGENT_LOGS: Final = f"kubectl logs -n {NAMESPACE} daemonset/kubeshare-node-agent"
_DAEMON_LOGS: Final = f"kubectl logs -n {NAMESPACE} daemonset/kubeshare-token-daemon"
_GENERATE: Final = (
    "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
)
_RUNTIME_FILE: Final = "/etc/nvidia-container-runtime/config.toml"


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What the files of a node say.

    Attributes:
        driver: the version of the kernel's NVIDIA driver; ``""`` if none is loaded.
        uuids: of its GPUs, where the driver lists them.
        cdi_devices: by the kind of each CDI spec, the names of its devices.
        containerd: its configuration; None where there is no file.
        accepts_visible_devices: whether NVIDIA's container runtime lets containers choose GPUs;
            None if it is not configured here.
        gates: feature gates in the kubelet's configuration.
        device_plugins: the sockets of device plugins, by name.
        installed: whether KubeShare is on this node.
        registered: whether its driver has a socket for the kubelet.
        served: whether a token daemon serves the run folder.
        bounded: whether the run folder is a file system of its own.
        libraries: installed versions of the device library.
        unread: by the name of one of these that could not be read, why.
    """

    driver: str = ""
    uuids: Sequence[str] = ()
    cdi_devices: Mapping[str, frozenset[str]] = {}
    containerd: ContainerdConfig | None = None
    accepts_visible_devices: bool | None = None
    gates: Mapping[str, bool] = {}
    device_plugins: Sequence[str] = ()
    installed: bool = False
    registered: bool = False
    served: bool = False
    bounded: bool = False
    libraries: int = 0
    unread: Mapping[str, str] = {}


def _driver(facts: NodeFacts) -> Verdict:
    if why := too_old(facts.driver):
        return fail(why, "upgrade the driver")
    if not facts.driver:
        return warn("no NVIDIA driver is loaded", "install it, if this node has GPUs")
    return ok(f"NVIDIA's driver is {facts.driver}")


def _cdi(facts: NodeFacts) -> Verdict:
    names = frozenset[str]().union(*facts.cdi_devices.values())
    if missing := [uuid for uuid in facts.uuids if uuid not in names]:
        return fail(f"no CDI spec has a device for {listed(missing)}", _GENERATE)
    if not names:
        return fail("neither /etc/cdi nor /var/run/cdi has a spec with devices", _GENERATE)
    kinds = sorted(facts.cdi_devices)
    return ok(f"{len(names)} devices of {listed(kinds)}")


def _containerd(facts: NodeFacts) -> Verdict:
    config = facts.containerd
    if config is None:
        return warn(
            "no configuration of containerd: its defaults, or another runtime",
            "see that CDI is on: `containerd config dump | grep enable_cdi`",
        )
    if config.has_cdi is False:
        return fail("enable_cdi is false", "set enable_cdi = true and restart containerd")
    if config.has_cdi is None:
        return warn(
            f"the configuration has the format of version {config.version} and does not say "
            "enable_cdi, which is off before containerd 2",
            "set enable_cdi = true and restart containerd",
        )
    return ok("containerd has CDI on")


def _visible_devices(facts: NodeFacts) -> Verdict:
    accepts = facts.accepts_visible_devices
    fix = f"set {VISIBLE_DEVICES} = false in {_RUNTIME_FILE}, and give NVIDIA's device plugin "
    fix += "DEVICE_LIST_STRATEGY=cdi-cri"
    if accepts and facts.containerd is not None and facts.containerd.default_is_nvidia:
        return fail(
            "NVIDIA's runtime is the default one: any pod gets all GPUs of this node by "
            "NVIDIA_VISIBLE_DEVICES=all, past its share and without one",
            fix,
        )
    if accepts:
        return warn(
            "pods that name a RuntimeClass of NVIDIA get GPUs by NVIDIA_VISIBLE_DEVICES", fix
        )
    return ok("no container chooses GPUs by NVIDIA_VISIBLE_DEVICES")


def _kubelet(facts: NodeFacts) -> Verdict:
    off = [name for name in GATES if facts.gates.get(name) is False]
    if off:
        setting = ", ".join(f"{name}: true" for name in off)
        return fail(f"off: {listed(off)}", f"featureGates: {{{setting}}} in the kubelet's file")
    return ok("no feature gate that shares need is off")


def _plugins(facts: NodeFacts) -> Verdict:
    return ok(f"sockets: {listed(facts.device_plugins)}" if facts.device_plugins else "none")


def _registration(facts: NodeFacts) -> Verdict:
    if not facts.registered:
        return fail("the driver for shares is not registered with the kubelet", _AGENT_LOGS)
    return ok("the driver for shares has its socket")


def _daemon(facts: NodeFacts) -> Verdict:
    if not facts.served:
        return fail("no token daemon serves /run/kubeshare", _DAEMON_LOGS)
    return ok("it serves /run/kubeshare")


def _run_folder(facts: NodeFacts) -> Verdict:
    if not facts.bounded:
        return warn(
            "/run/kubeshare is not a file system of its own: containers can fill /run",
            f"it is mounted at the next boot; {_AGENT_LOGS} says why",
        )
    return ok("/run/kubeshare is a file system of its own")


def _library(facts: NodeFacts) -> Verdict:
    if not facts.libraries:
        return fail("/var/lib/kubeshare/lib has no device library", _AGENT_LOGS)
    return ok(f"{facts.libraries} versions are installed")


NODE: Final = (
    Check("driver", ("driver",), _driver),
    Check("CDI specs", ("cdi_devices", "uuids"), _cdi),
    Check("containerd", ("containerd",), _containerd),
    Check("NVIDIA runtime", ("accepts_visible_devices", "containerd"), _visible_devices),
    Check("kubelet", ("gates",), _kubelet),
    Check("device plugins", ("device_plugins",), _plugins),
)
"""What a node needs before KubeShare is installed."""

ATTACHMENT: Final = (
    Check("registration", ("registered",), _registration),
    Check("token daemon", ("served",), _daemon),
    Check("run folder", ("bounded",), _run_folder),
    Check("device library", ("libraries",), _library),
)
"""What KubeShare's own programs have to have done on a node."""
