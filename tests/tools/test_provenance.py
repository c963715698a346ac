"""A release states how it was built, and who changes a byte of it is found out."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tools import provenance, release, signing

KEY = signing.new_key()
SOURCE = provenance.Source(commit="c" * 40, url="https://git.example/kubeshare")
FILES = {"install.yaml": b"kind: List\n", "kubeshare-1.2.3.tgz": b"a chart"}


def private_pem(key: Any, passphrase: bytes | None = None) -> bytes:
    protected: Any = serialization.NoEncryption()
    if passphrase:
        protected = serialization.BestAvailableEncryption(passphrase)
    form = serialization.PrivateFormat.PKCS8
    found: bytes = key.private_bytes(serialization.Encoding.PEM, form, protected)
    return found


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """The files of a release with its statement, as `make release KEY=… BUILDER=…` signs it."""
    (tmp_path / "release.key").write_bytes(private_pem(KEY))
    signer = release.signer_of(tmp_path / "release.key", "https://ci.example/", SOURCE)
    folder = tmp_path / "dist"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    parameters = {"version": "1.2.3", "image": "i", "url": "https://d.example/"}
    began = "2026-01-01T00:00:00Z"
    words = release.state_provenance(folder, [*folder.iterdir()], signer, parameters, began)
    assert words.startswith(f"verified: 2 files, built from commit {'c' * 40} by https://ci.exampl")
    return folder


def verify(dist: Path, *names: str, key: Path | None = None) -> int:
    """The exit code of the command for recipients."""
    statement = dist / "kubeshare-1.2.3.intoto.jsonl"
    given = key or dist / "kubeshare-1.2.3.pub"
    files = [str(dist / name) for name in names or FILES]
    return provenance.main(["--key", str(given), str(statement), *files])


def test_the_statement_names_files_builder_commit_and_pins(dist: Path) -> None:
    envelope = json.loads((dist / "kubeshare-1.2.3.intoto.jsonl").read_bytes())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    stated = json.loads(base64.b64decode(envelope["payload"]))
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {each["name"] for each in stated["subject"]} == set(FILES)
    assert all(len(each["digest"]["sha256"]) == 64 for each in stated["subject"])
    definition, details = (stated["predicate"][key] for key in ("buildDefinition", "runDetails"))
    source, *pins = definition["resolvedDependencies"]
    assert source == {
        "name": "source",
        "uri": "git+https://git.example/kubeshare",
        "digest": {"gitCommit": "c" * 40},
    }
    assert "requirements/runtime.txt" in {each["name"] for each in pins}
    assert definition["internalParameters"] == {"uncommittedChanges": False}
    assert definition["externalParameters"]["image"] == "i"
    assert details["builder"] == {"id": "https://ci.example/"}
    assert details["metadata"]["startedOn"] == "2026-01-01T00:00:00Z"


def test_files_as_they_were_built_are_accepted(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(dist) == 0
    assert "by https://ci.example/, signed by key " in capsys.readouterr().out
    assert verify(dist, "install.yaml") == 0


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_of_a_file_is_found(
    name: str, dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((dist / name).read_bytes())
    content[0] ^= 1
    (dist / name).write_bytes(content)
    assert verify(dist) == 1
    words = f"provenance: {name} is not the file that the statement names\n"
    assert capsys.readouterr().err == words


def test_a_changed_byte_anywhere_in_the_statement_is_found(dist: Path) -> None:
    path = dist / "kubeshare-1.2.3.intoto.jsonl"
    whole = path.read_bytes()
    changed = 0
    for at in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        # What is not signed may change: it says by which key to verify, and nothing else.
        if whole.index(b'"keyid":"') <= at < whole.index(b'"sig"'):
            continue
        assert verify(dist) == 1, at
        changed += 1
    assert changed > 100


def test_a_file_that_was_added_or_renamed_is_found(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dist / "more.yaml").write_bytes(FILES["install.yaml"])
    assert verify(dist, "more.yaml") == 1
    assert "the statement does not name more.yaml" in capsys.readouterr().err
    assert verify(dist, "missing.yaml") == 1


def test_the_signature_of_another_key_is_refused(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.pub"
    other.write_bytes(signing.pem(signing.new_key().public_key()))
    assert verify(dist, key=other) == 1
    assert "has not signed this document as it is" in capsys.readouterr().err


def test_openssl_accepts_the_signature(dist: Path, tmp_path: Path) -> None:
    """It is one of the standard, over what DSSE says."""
    envelope = json.loads((dist / "kubeshare-1.2.3.intoto.jsonl").read_bytes())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    head = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode()
    (tmp_path / "signed").write_bytes(head + payload)
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "dgst", "-sha256", "-verify", str(dist / "kubeshare-1.2.3.pub")]
    command += ["-signature", str(tmp_path / "sig"), str(tmp_path / "signed")]
    assert subprocess.check_output(command) == b"Verified OK\n"


def test_the_bundle_for_cosign_has_the_same_statement_and_signature(dist: Path) -> None:
    envelope = json.loads((dist / "kubeshare-1.2.3.intoto.jsonl").read_bytes())
    bundle = json.loads((dist / "kubeshare-1.2.3.sigstore.json").read_bytes())
    assert bundle["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    key_id = signing.key_id(KEY.public_key())
    assert bundle["verificationMaterial"] == {"publicKey": {"hint": key_id}}
    del envelope["signatures"][0]["keyid"]  # cosign refuses one that is not its own
    assert bundle["dsseEnvelope"] == envelope


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"no key", "is not a key of ECDSA on P-256 in PEM without a passphrase"),
        (private_pem(KEY, b"secret"), "in PEM without a passphrase"),
        (private_pem(ed25519.Ed25519PrivateKey.generate()), "is not a key of ECDSA on P-256"),
        (private_pem(ec.generate_private_key(ec.SECP384R1())), "is not a key of ECDSA on P-256"),
    ],
    ids=["none", "encrypted", "Ed25519", "P-384"],
)
def test_a_key_that_cannot_be_used_is_refused(key: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(key)
    with pytest.raises(signing.SigningError, match=words):
        release.signer_of(tmp_path / "key", "https://ci.example/", SOURCE)


def test_what_is_signed_is_a_commit_and_names_its_builder(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(private_pem(KEY))
    dirty = provenance.Source(commit="c", dirty=True)
    with pytest.raises(release.ReleaseError, match="commit or remove all changes"):
        release.signer_of(tmp_path / "key", "https://ci.example/", dirty)
    with pytest.raises(release.ReleaseError, match="BUILDER=https://"):
        release.signer_of(tmp_path / "key", None, SOURCE)
    dry = release.signer_of(None, None, dirty)
    assert (dry.dry, dry.builder) == (True, release.DRY_BUILDER)


def test_the_source_is_the_commit_and_the_address_without_a_password(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        command = ["git", *who, "-C", str(tmp_path), *words]
        return subprocess.check_output(command, text=True).strip()

    with pytest.raises(provenance.ProvenanceError, match="no clone"):
        provenance.source_of(tmp_path)
    git("init", "-q")
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-qm", "a")
    commit = git("rev-parse", "HEAD")
    assert provenance.source_of(tmp_path) == provenance.Source(commit=commit)
    git("remote", "add", "origin", "https://me:secret@git.example/a.git")
    (tmp_path / "b").write_text("b")
    expected = provenance.Source(commit=commit, url="https://git.example/a.git", dirty=True)
    assert provenance.source_of(tmp_path) == expected
