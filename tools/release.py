"""Builds what a release consists of into ``dist/`` and publishes nothing.

Wheels of KubeShare and of its lab, the sdist, the context of the container image (a tar of the
``Containerfile`` and all that it copies), the packaged Helm chart, all manifests as
``install.yaml``, the kubectl plugin with its manifest for krew, what it all consists of (a
CycloneDX document and the licences), and a signed statement of how each file was built. Without a
key the statement is signed by one that is made for it and not kept. The version stands in
``kubeshare.__version__``; the changelog must have a section for it, or ``Unreleased`` for a trial.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml
from msgspec import Struct
from tools.image_context import ImageError, write_context

from kubeshare import __version__
from kubeshare.install import manifests
from kubeshare.kube.clock import utc_now
from kubeshare.kube.conditions import timestamp
from tools import krew, provenance, sbom, signing

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "deploy" / "chart" / "kubeshare"
IN_THE_WHEEL: Final = {
    "kubeshare/deploy/chart/kubeshare/manifests/crds/vgpus.yaml": "the manifests of deploy/",
    "kubeshare/py.typed": "py.typed, without which its types are not read",
    "kubeshare/client/__init__.py": "the client",
    "kubeshare/policy_testing/__init__.py": "the conformance test of policies",
}
"""Files of a wheel, and what is missing without them."""
DRY_BUILDER: Final = "https://kubeshare.invalid/builders/dry-run"
"""The builder where nobody says who builds; not an address."""
NOT_IN_THE_WHEEL: Final = ("kubeshare/demo/", "kubeshare/fakegpu/", "kubeshare/lab/")


class ReleaseError(Exception):
    """The release is not complete; the message says what is missing."""


def changelog_section(text: str, version: str) -> str:
    """The heading of the section for `version`; ``Unreleased`` where it has none yet.

    Raises:
        ReleaseError: there is neither.
    """
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    for heading in headings:
        if heading.split()[0].strip("[]") in {version, "Unreleased"}:
            return str(heading)
    raise ReleaseError(f"CHANGELOG.md has no section for {version}: write one")


def build(project: Path, dist: Path, *kinds: str) -> None:
    """Build a project's packages with the pinned build backend.

    Raises:
        ReleaseError: the build failed; the message has its last words.
    """
    uv, pins = Path(sys.executable).with_name("uv"), ROOT / "requirements" / "build.txt"
    pinned = ["--build-constraints", str(pins), "--require-hashes"]
    command = [str(uv), "build", *kinds, "--quiet", "--out-dir", str(dist), *pinned, str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"building {project} failed: {done.stderr.strip()[-800:]}")


def check_wheel(wheel: Path) -> None:
    """See that the wheel has what users import and the manifests, and nothing of the lab.

    Raises:
        ReleaseError: it is not so.
    """
    names = zipfile.ZipFile(wheel).namelist()
    extra = [name for name in names if name.startswith(NOT_IN_THE_WHEEL)]
    if extra:
        raise ReleaseError(f"{wheel.name} has {extra[0]}, which belongs to the lab's wheel")
    for name, what in IN_THE_WHEEL.items():
        if name not in names:
            raise ReleaseError(f"{wheel.name} lacks {what}")


def image_context(path: Path) -> None:
    """Write a tar of the context of the image.

    Raises:
        ReleaseError: something of it is missing.
    """
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w:gz") as tar:
        context = Path(folder, "image")
        try:
            write_context(context)
        except ImageError as error:
            raise ReleaseError(str(error)) from None
        for each in sorted(context.iterdir()):
            tar.add(each, each.name)


def chart(path: Path) -> None:
    """Write the chart as Helm packages it."""
    with tarfile.open(path, "w:gz") as tar:
        tar.add(CHART, CHART.name, filter=_without_bytecode)


def install_yaml(image: str) -> str:
    """All manifests that ``kubeshare install`` applies, in its order."""
    head = (
        f"# KubeShare {__version__}, for Kubernetes 1.36 and later: kubectl apply --server-side -f "
        "install.yaml\n# `kubeshare install` applies the same, waits until it works, and refuses "
        f"what cannot. The image of\n# all programs is {image}: put yours in its place.\n"
    )
    loaded = manifests.load(manifests.Options(namespace="kubeshare-system", image=image))
    return head + yaml.safe_dump_all(loaded, sort_keys=False)


def plugin(dist: Path, wheel: Path, url: str) -> None:
    """Build the kubectl plugin for each architecture, and its manifest.

    Raises:
        PluginError: one could not be built.
    """
    requirements = (ROOT / "requirements" / "runtime.txt").read_text()
    archives = {
        architecture: dist / f"kubectl-kubeshare-{__version__}-linux-{architecture}.tar.gz"
        for architecture in krew.PLATFORMS
    }
    for architecture, path in archives.items():
        krew.archive(wheel, requirements, architecture, path)
    (dist / "kubeshare-krew.yaml").write_text(krew.manifest(__version__, archives, url))


def contents(dist: Path) -> None:
    """Write the CycloneDX document and the list of licences.

    Raises:
        LicenceError: a package says no licence.
    """
    found = sbom.packages((ROOT / "requirements" / "runtime.txt").read_text())
    name = dist / f"kubeshare-{__version__}"
    document = sbom.document(__version__, found, ROOT / "native")
    name.with_name(f"{name.name}.cdx.json").write_text(document)
    name.with_name(f"{name.name}-licences.txt").write_text(sbom.licence_list(__version__, found))


class Signer(Struct, frozen=True):
    """Who builds a release of which source, and signs the statement of it."""

    source: provenance.Source
    key: signing.PrivateKey
    builder: str
    dry: bool


def signer_of(key: Path | None, builder: str | None, source: provenance.Source) -> Signer:
    """Who signs: the key that is given, or one that is made for a dry run and not kept.

    Raises:
        ReleaseError: a key is given and the source has changes, or no builder is named.
        SigningError: the key cannot be used.
    """
    if key is None:
        return Signer(source, signing.new_key(), builder or DRY_BUILDER, dry=True)
    if source.dirty:
        raise ReleaseError("what is signed is a commit: commit or remove all changes first")
    if not builder:
        raise ReleaseError("a release that is signed names who builds it: BUILDER=https://…")
    return Signer(source, signing.read_private_key(key.read_bytes()), builder, dry=False)


def state_provenance(
    dist: Path, files: Sequence[Path], signer: Signer, parameters: Mapping[str, str], began: str
) -> str:
    """Write the signed statement and the public key into ``dist``, and verify the files by them.

    Returns:
        what was verified, for people.

    Raises:
        SigningError: what was written does not verify.
        ProvenanceError: the same.
    """
    pins = sorted((ROOT / "requirements").glob("*.txt"))
    stated = provenance.statement(
        *(files, signer.source, pins),
        builder=signer.builder,
        parameters=parameters,
        began=began,
        ended=timestamp(utc_now()),
    )
    name = f"kubeshare-{parameters['version']}"
    written, public = dist / f"{name}.intoto.jsonl", dist / f"{name}.pub"
    written.write_bytes(provenance.signed(stated, signer.key))
    (dist / f"{name}.sigstore.json").write_bytes(signing.bundle(written.read_bytes()))
    public.write_bytes(signing.pem(signer.key.public_key()))
    key = signing.read_public_key(public.read_bytes())
    found = provenance.verify(written.read_bytes(), key, files)
    dirty = " with changes that no commit has" if signer.source.dirty else ""
    kept = " that was made for this dry run" if signer.dry else ""
    return (
        f"verified: {len(files)} files, {provenance.described(found)}{dirty}, "
        f"signed by key {signing.key_id(key)}{kept}"
    )


def _without_bytecode(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


def changed(path: Path, before: Mapping[Path, int]) -> bool:
    """Whether a file is not the one of a time, by the times of modification then."""
    return path.stat().st_mtime_ns != before.get(path)


def main() -> int:
    """Build all of it; exit code 1 when something is missing."""
    parser = argparse.ArgumentParser(description="Build a release into dist/; publish nothing.")
    parser.add_argument("--image", default=f"kubeshare:{__version__}", help="of install.yaml")
    parser.add_argument(
        "--url",
        default=f"https://kubeshare.invalid/v{__version__}",
        help="the folder from which krew will download the plugin",
    )
    parser.add_argument("--key", type=Path, help="the private key that signs, in PEM")
    parser.add_argument("--builder", help="a URI of who builds, for the statement")
    options = parser.parse_args()
    dist = ROOT / "dist"
    began = timestamp(utc_now())
    before = {path: path.stat().st_mtime_ns for path in dist.glob("*")}
    try:
        section = changelog_section((ROOT / "CHANGELOG.md").read_text(), __version__)
        signer = signer_of(options.key, options.builder, provenance.source_of(ROOT))
        print(f"release {__version__} (changelog: {section}), a dry run: nothing is published")
        build(ROOT, dist)
        build(ROOT / "packaging" / "lab", dist, "--wheel")
        wheel = dist / f"kubeshare-{__version__}-py3-none-any.whl"
        check_wheel(wheel)
        image_context(dist / f"kubeshare-image-{__version__}.tar.gz")
        chart(dist / f"kubeshare-{__version__}.tgz")
        (dist / "install.yaml").write_text(install_yaml(options.image))
        plugin(dist, wheel, options.url)
        contents(dist)
        built = [path for path in dist.glob("[!.]*") if path.is_file() and changed(path, before)]
        parameters = {"version": __version__, "image": options.image, "url": options.url}
        verified = state_provenance(dist, built, signer, parameters, began)
    except (
        *(ReleaseError, krew.PluginError, sbom.LicenceError),
        *(provenance.ProvenanceError, signing.SigningError, OSError),
    ) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(dist.iterdir()):
        if changed(path, before):
            print(f"  dist/{path.name}  {path.stat().st_size / 1024:.0f} KiB")
    print(verified)
    print(
        "next: tag the commit, build the image from its context, and upload the rest; before, say "
        "where and sign: make release IMAGE=REGISTRY/kubeshare@sha256:… URL=https://… "
        "KEY=~/release.key BUILDER=https://…"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
