"""CDI specs: finds the GPU's device, writes a claim's spec.

A CDI spec defines what a device name means to the container runtime: mounts and device
nodes. The GPU's spec comes with the driver's set-up (``nvidia-ctk cdi generate``,
NVIDIA's device plugin or GPU operator). Its kind differs between set-ups, so its device is
found by the GPU's UUID. The spec of a claim is KubeShare's own, and has one device for each
of its grants.

Runtimes refuse a spec whose ``cdiVersion`` is lower than its fields require, and old
runtimes refuse one that is higher than they support. So the specs have the lowest version
that suffices: 0.5.0, because a claim's uid may begin with a digit.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from kubeshare.api.types.constants import CDI_CLAIM_KIND, WHOLE_GPU_RESOURCE
from kubeshare.node.paths import (
    CONTAINER_CLAIM,
    CONTAINER_COUNTERS,
    CONTAINER_LIBRARY,
    CONTAINER_PRELOAD,
)

_VERSION = "0.5.0"
# Without a dot, which separates a claim from the name of a share in the name of a grant.
_CLAIM_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?")
_FILE_PREFIX = CDI_CLAIM_KIND.replace("/", "-") + "_"
_FILE_SUFFIX = ".json"
_DRAFT_SUFFIX = ".tmp"
_SPEC_SUFFIXES = frozenset({".json", ".yaml"})


class GpuDeviceMissingError(Exception):
    """No CDI spec of this node has a device of that name."""


class _Device(msgspec.Struct, frozen=True):
    name: str | int = ""


class _Spec(msgspec.Struct, frozen=True):
    """The fields of another program's spec that are read."""

    kind: str = ""
    devices: tuple[_Device, ...] = ()


@dataclass(frozen=True)
class ClaimMounts:
    """The host's paths of what the containers of a grant mount."""

    claim: Path
    counters: Path
    library: Path
    preload: Path


def check_claim_name(name: str) -> str:
    """Return a claim's uid if it is valid for a CDI device, a grant and a file; it becomes all.

    Raises:
        ValueError: it has other characters, or more than 128.
    """
    if not _CLAIM_NAME.fullmatch(name):
        raise ValueError(
            f"claim uid {name!r} is no name for files: letters, digits, '_' and '-', "
            "at most 128, beginning and ending with a letter or digit"
        )
    return name


def find_gpu(folders: list[Path], uuid: str) -> str:
    """The full CDI name of the GPU with this UUID, for example ``nvidia.com/gpu=GPU-…``.

    ``folders`` are the runtime's spec folders. If several specs have the GPU, NVIDIA's usual
    kind wins, then the first by name: all of them mean the same GPU.

    Raises:
        GpuDeviceMissingError: no spec has it; the message says how to create one.
    """
    kinds = sorted(
        {kind for kind, names in devices(folders) if uuid in names},
        key=lambda kind: (kind != WHOLE_GPU_RESOURCE, kind),
    )
    if not kinds:
        places = " and ".join(map(str, folders))
        raise GpuDeviceMissingError(
            f"no CDI spec in {places} has a device named {uuid}: "
            "make one on this node with `nvidia-ctk cdi generate --device-name-strategy=uuid "
            "--output=/etc/cdi/nvidia.yaml`"
        )
    return f"{kinds[0]}={uuid}"


def devices(folders: list[Path]) -> Iterator[tuple[str, set[str]]]:
    """The kind and the names of the devices of each spec that is not KubeShare's own."""
    for folder in folders:
        for file in sorted(folder.iterdir() if folder.is_dir() else ()):
            if file.suffix in _SPEC_SUFFIXES and not file.name.startswith(_FILE_PREFIX):
                spec = _load(file)
                yield spec.kind, {str(device.name) for device in spec.devices}


def _load(file: Path) -> _Spec:
    # Other programs write here too: like the runtime, ignore a spec of theirs that is broken
    # or has vanished.
    try:
        status = file.stat()
        return _parsed(file, (status.st_ino, status.st_size, status.st_mtime_ns))
    except (OSError, ValueError, yaml.YAMLError, msgspec.ValidationError):
        return _Spec()


@lru_cache(maxsize=64)
def _parsed(file: Path, _version: tuple[int, int, int]) -> _Spec:
    """Parse a spec; cached until the file changes, because each start of a pod waits for it."""
    return msgspec.convert(yaml.load(file.read_bytes(), Loader=_LOADER), _Spec)  # noqa: S506 - a safe loader


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def claim_device(grant: str) -> str:
    """The full CDI name of the device of a claim's grant."""
    return f"{CDI_CLAIM_KIND}={grant}"


def environment_name(claim: str, container: str) -> str:
    """The name of the device that gives a container its variables; no share has such a name."""
    return f"{claim}.env.{container}"


def claim_spec(
    mounts: Mapping[str, ClaimMounts], environments: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """The CDI spec that mounts the folder of a grant and the device library into a container.

    Args:
        mounts: by the name of each grant of the claim.
        environments: by the name of the device that sets them, the variables of a container.
    """
    return {
        "cdiVersion": _VERSION,
        "kind": CDI_CLAIM_KIND,
        "devices": [
            *(
                {"name": name, "containerEdits": {"env": _assignments(variables)}}
                for name, variables in sorted(environments.items())
            ),
            *(
                {
                    "name": grant,
                    "containerEdits": {
                        "mounts": [
                            _mount(paths.claim, CONTAINER_CLAIM, "ro"),
                            _mount(paths.counters, CONTAINER_COUNTERS, "rw"),
                            _mount(paths.library, CONTAINER_LIBRARY, "ro"),
                            _mount(paths.preload, CONTAINER_PRELOAD, "ro"),
                        ]
                    },
                }
                for grant, paths in sorted(mounts.items())
            ),
        ],
    }


def _assignments(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(variables.items())]


def _mount(source: Path, target: str, mode: str) -> dict[str, Any]:
    return {
        "hostPath": str(source),
        "containerPath": target,
        "options": [mode, "nosuid", "nodev", "rbind", "rprivate"],
    }


def write_claim(
    folder: Path,
    claim: str,
    mounts: Mapping[str, ClaimMounts],
    environments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Write the spec of a claim (its uid) by rename, into a folder that is created if missing.

    ``mounts`` and ``environments`` are those of :func:`claim_spec`.
    """
    target = _file(folder, claim)
    folder.mkdir(parents=True, exist_ok=True)
    # Runtimes read only .json and .yaml files, so they ignore the draft.
    draft = target.with_suffix(_DRAFT_SUFFIX)
    with draft.open("w", encoding="utf-8") as stream:
        json.dump(claim_spec(mounts, environments), stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(target)


def remove_claim(folder: Path, claim: str) -> None:
    """Remove a claim's spec, and the draft of one that a crash left, if there are any."""
    file = _file(folder, claim)
    file.unlink(missing_ok=True)
    file.with_suffix(_DRAFT_SUFFIX).unlink(missing_ok=True)


def claims(folder: Path) -> set[str]:
    """The claims that have a spec, or the draft of one."""
    if not folder.is_dir():
        return set()
    names = {
        file.stem.removeprefix(_FILE_PREFIX)
        for file in folder.iterdir()
        if file.name.startswith(_FILE_PREFIX) and file.suffix in {_FILE_SUFFIX, _DRAFT_SUFFIX}
    }
    # A file of another name is not the agent's.
    return set(filter(_CLAIM_NAME.fullmatch, names))


def _file(folder: Path, claim: str) -> Path:
    return folder / f"{_FILE_PREFIX}{check_claim_name(claim)}{_FILE_SUFFIX}"
