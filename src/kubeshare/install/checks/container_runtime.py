"""Reads the configuration of containerd, and of NVIDIA's container runtime."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from kubeshare.install.checks.platform import VISIBLE_DEVICES

_CRI = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_CDI_BY_DEFAULT = 3
_NVIDIA = "nvidia-container-runtime"


class ContainerdConfig(Struct, frozen=True, kw_only=True):
    """What of containerd's configuration matters.

    Attributes:
        version: of the format, from 3 on with CDI by default; 0 where there is no file.
        cdi: whether CDI is on, None where the files do not say.
        default_is_nvidia: whether containers without a RuntimeClass get NVIDIA's runtime.
    """

    version: int = 0
    cdi: bool | None = None
    default_is_nvidia: bool = False

    @property
    def has_cdi(self) -> bool | None:
        """Whether CDI is on; None if that depends on the version of containerd."""
        if self.cdi is None and self.version >= _CDI_BY_DEFAULT:
            return True
        return self.cdi


def containerd_config(texts: Iterable[str]) -> ContainerdConfig:
    """The configuration in a file and in those that it imports, of which the last one wins.

    Raises:
        tomllib.TOMLDecodeError: a file is not TOML.
    """
    found = ContainerdConfig()
    binaries: dict[str, str] = {}
    default, cdi, version = "", found.cdi, 0
    for text in texts:
        document = tomllib.loads(text)
        version = max(version, _number(document.get("version", 1)))
        for plugin in _cri(document):
            cdi = plugin.get("enable_cdi", cdi)
            containerd = _table(plugin, "containerd")
            default = containerd.get("default_runtime_name", default)
            for name, runtime in _table(containerd, "runtimes").items():
                options = _table(runtime, "options") if isinstance(runtime, Mapping) else {}
                binaries[name] = str(options.get("BinaryName", ""))
    return ContainerdConfig(
        version=version,
        cdi=cdi,
        default_is_nvidia=_NVIDIA in binaries.get(default, "") or default == "nvidia",
    )


def imports(text: str) -> list[str]:
    """The patterns of the files that a configuration of containerd imports.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML.
    """
    return [str(pattern) for pattern in tomllib.loads(text).get("imports", ())]


def accepts_visible_devices(text: str) -> bool:
    """Whether NVIDIA's runtime gives a container the GPUs of its NVIDIA_VISIBLE_DEVICES.

    Args:
        text: of ``/etc/nvidia-container-runtime/config.toml``.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML.
    """
    return tomllib.loads(text).get(VISIBLE_DEVICES, True) is not False


def _cri(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    plugins = _table(document, "plugins")
    for name in _CRI:
        yield _table(plugins, name)


def _table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
