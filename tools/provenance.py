"""States how the files of a release were built, and verifies files by such a statement.

The statement is in-toto's with the predicate of SLSA (slsa.dev/provenance/v1): each file by its
SHA-256, the commit and the pinned requirements that it was built from, and who built it. It is
signed (``tools/signing.py``). A recipient verifies files so:

    python -m tools.provenance --key KEY.pub STATEMENT.intoto.jsonl FILE…
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tools import signing

PAYLOAD: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD: Final = "https://kubeshare.invalid/make-release/v1"
"""The kind of build, `make release`; not an address."""


class ProvenanceError(Exception):
    """The source is not known, or files are not those that a statement names."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is built.

    Attributes:
        commit: its full hash.
        url: of the repository; "" if it has none that others reach.
        dirty: whether the work tree has changes that no commit has.
    """

    commit: str
    url: str = ""
    dirty: bool = False


class Subject(msgspec.Struct, frozen=True):
    """A file of a release, and its digests."""

    name: str
    digest: dict[str, str]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about files."""

    type_: str = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: dict[str, Any]


def source_of(clone: Path) -> Source:
    """What a clone has checked out.

    Raises:
        ProvenanceError: it is no clone.
    """
    commit = _git(clone, "rev-parse", "HEAD")
    if not commit:
        raise ProvenanceError("this is no clone, so nobody could say which commit was built")
    remote = urlsplit(_git(clone, "remote", "get-url", "origin"))
    # Without the user's name and password, which a URL may have.
    shown = remote._replace(netloc=remote.netloc.rpartition("@")[2]).geturl()
    url = shown if remote.scheme in ("https", "ssh") else ""
    return Source(commit=commit, url=url, dirty=bool(_git(clone, "status", "--porcelain")))


def statement(  # noqa: PLR0913 - what it states
    files: Sequence[Path],
    source: Source,
    pins: Sequence[Path],
    *,
    builder: str,
    parameters: Mapping[str, str],
    began: str,
    ended: str,
) -> Statement:
    """The statement that these files were built so.

    Args:
        files: of the release.
        source: that they were built from.
        pins: the files of pinned requirements.
        builder: a URI of who built them.
        parameters: that the builder gave.
        began: RFC 3339, as is ``ended``.
        ended: when they were there.
    """
    origin: dict[str, Any] = {"name": "source", "digest": {"gitCommit": source.commit}}
    if source.url:
        origin["uri"] = f"git+{source.url}"
    pinned = [{"name": f"requirements/{each.name}", "digest": _digest(each)} for each in pins]
    definition = {
        "buildType": BUILD,
        "externalParameters": dict(parameters),
        "internalParameters": {"uncommittedChanges": source.dirty},
        "resolvedDependencies": [origin, *pinned],
    }
    metadata = {"startedOn": began, "finishedOn": ended}
    return Statement(
        type_=STATEMENT,
        subject=tuple(Subject(path.name, _digest(path)) for path in sorted(files)),
        predicate_type=PREDICATE,
        predicate={
            "buildDefinition": definition,
            "runDetails": {"builder": {"id": builder}, "metadata": metadata},
        },
    )


def signed(stated: Statement, key: signing.PrivateKey) -> bytes:
    """The signed statement, as a line of JSON."""
    return signing.sign(msgspec.json.encode(stated), PAYLOAD, key)


def verify(envelope: bytes, key: signing.PublicKey, files: Sequence[Path]) -> Statement:
    """The statement, if this key has signed it and it names each of these files as it is.

    Raises:
        SigningError: this key has not signed it.
        ProvenanceError: a file is another one.
    """
    try:
        found = msgspec.json.decode(signing.verified(envelope, PAYLOAD, key), type=Statement)
    except msgspec.DecodeError as error:
        raise ProvenanceError(f"what is signed is no statement: {error}") from error
    if (found.type_, found.predicate_type) != (STATEMENT, PREDICATE):
        raise ProvenanceError(f"the statement is a {found.predicate_type}, not a {PREDICATE}")
    stated = {each.name: each.digest.get("sha256") for each in found.subject}
    for path in files:
        if path.name not in stated:
            raise ProvenanceError(f"the statement does not name {path.name}")
        if stated[path.name] != _digest(path)["sha256"]:
            raise ProvenanceError(f"{path.name} is not the file that the statement names")
    return found


def described(found: Statement) -> str:
    """Who built what, for people."""
    source, *_ = found.predicate["buildDefinition"]["resolvedDependencies"]
    builder = found.predicate["runDetails"]["builder"]["id"]
    return f"built from commit {source['digest']['gitCommit']} by {builder}"


def _digest(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _git(clone: Path, *words: str) -> str:
    """What git says of a clone; "" without git or a clone."""
    git = shutil.which("git")
    if git is None or not (clone / ".git").exists():
        return ""
    command = [git, "-C", str(clone), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify files; exit code 1 when they are not what was signed."""
    parser = argparse.ArgumentParser(description="Verify files of a release.")
    parser.add_argument("--key", type=Path, required=True, help="the public key, in PEM")
    parser.add_argument("statement", type=Path, help="its name ends in .intoto.jsonl")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        key = signing.read_public_key(options.key.read_bytes())
        found = verify(options.statement.read_bytes(), key, options.files)
    except (signing.SigningError, ProvenanceError, OSError) as error:
        print(f"provenance: {error}", file=sys.stderr)
        return 1
    names = ", ".join(path.name for path in options.files)
    print(f"{names}: {described(found)}, signed by key {signing.key_id(key)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
