"""Lists what a release consists of: a CycloneDX document, and the licences.

Components are the pinned packages of ``requirements/runtime.txt``, which the image and the kubectl
plugin have, and KubeShare's own C sources. Licences are those that the packages state themselves,
read where they are installed.
"""

import hashlib
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from msgspec import Struct
from packageurl import PackageURL

NATIVE: Final = ("device_library", "driver_api", "include", "compiled")
"""The folders of ``native/`` whose code a release runs; the others are for tests and demos."""
_OURS: Final = "Apache-2.0"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\]+)", re.MULTILINE)
_SPDX: Final = {"MIT License": "MIT", "3-Clause BSD License": "BSD-3-Clause"}
"""What packages say in words of their own."""


class LicenceError(Exception):
    """A package does not say its licence; the message names it."""


class Package(Struct, frozen=True):
    """A pinned package, and the licence that it states."""

    name: str
    version: str
    licence: str


def packages(requirements: str) -> list[Package]:
    """The packages of a file of requirements.

    Raises:
        LicenceError: one is not installed here, or says no licence.
    """
    return [
        Package(name, version, licence_of(name)) for name, version in _PIN.findall(requirements)
    ]


def licence_of(name: str) -> str:
    """What an installed package says of its licence, in SPDX's terms where it uses them.

    Raises:
        LicenceError: it is not installed, or says none.
    """
    try:
        said = metadata(name)
    except PackageNotFoundError:
        raise LicenceError(f"{name} is not installed: run `make setup`") from None
    for expression in said.get_all("License-Expression") or ():
        return str(expression)
    classes = [
        each.rpartition(" :: ")[2]
        for each in said.get_all("Classifier") or ()
        if each.startswith("License :: ")
    ]
    stated = said.get_all("License") or [""]
    text = " and ".join(classes) or str(stated[0]).partition("\n")[0]
    if not text:
        raise LicenceError(f"{name} says no licence: look it up, and add it here")
    return _SPDX.get(text, text)


def sources(native: Path) -> list[Path]:
    """The C sources and headers that a release is built from."""
    return sorted(
        path
        for name in NATIVE
        for suffix in ("c", "h")
        for path in (native / name).rglob(f"*.{suffix}")
    )


def document(version: str, found: Sequence[Package], native: Path) -> str:
    """The CycloneDX document, as JSON.

    Args:
        version: KubeShare's.
        found: what it needs at run time.
        native: the folder of the C sources.
    """
    licences = LicenseFactory()
    root = Component(
        name="kubeshare",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"kubeshare@{version}",
        licenses=[licences.make_with_expression(_OURS)],
    )
    library = Component(
        name="kubeshare-native",
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"kubeshare-native@{version}",
        licenses=[licences.make_with_expression(_OURS)],
        components=[_source(path, native) for path in sources(native)],
    )
    bom = Bom(components=[library, *(_component(each, licences) for each in found)])
    bom.metadata.component = root
    bom.serial_number = uuid5(NAMESPACE_URL, repr((version, found, sources(native))))
    bom.register_dependency(root, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def licence_list(version: str, found: Sequence[Package]) -> str:
    """A table of the packages and their licences, for people."""
    rows = [
        ("kubeshare", version, _OURS),
        *((each.name, each.version, each.licence) for each in found),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{name:<{widths[0]}}  {number:<{widths[1]}}  {said}" for name, number, said in rows]
    return "\n".join(lines) + "\n"


def _component(package: Package, licences: LicenseFactory) -> Component:
    purl = PackageURL("pypi", name=package.name, version=package.version)
    stated = LicenseAcknowledgement.DECLARED
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[licences.make_from_string(package.licence, license_acknowledgement=stated)],
    )


def _source(path: Path, native: Path) -> Component:
    name = f"native/{path.relative_to(native)}"
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component(
        name=name,
        type=ComponentType.FILE,
        bom_ref=name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content)],
    )
