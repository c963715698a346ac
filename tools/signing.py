"""Signs a document and verifies its signature: an envelope of DSSE, keys of ECDSA on P-256.

``github.com/secure-systems-lab/dsse`` describes the envelope. The keys are those of
``openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256``.
"""

import base64
import binascii
import hashlib
from typing import Final, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""The media type of a Sigstore bundle (github.com/sigstore/protobuf-specs)."""

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey

_KEYS: Final = "a key of ECDSA on P-256 in PEM"
_ALGORITHM: Final = ec.ECDSA(hashes.SHA256())


class SigningError(Exception):
    """A key cannot be used, or has not signed a document."""


class Signature(msgspec.Struct, frozen=True):
    """A signature, in base64, and the SHA-256 of the public key's DER."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A signed document; ``payload`` is base64."""

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]


def sign(payload: bytes, kind: str, key: PrivateKey) -> bytes:
    """A signed document of a media type, as a line of JSON."""
    signature = key.sign(signed_bytes(payload, kind), _ALGORITHM)
    signatures = (Signature(key_id(key.public_key()), _base64(signature)),)
    return msgspec.json.encode(Envelope(kind, _base64(payload), signatures)) + b"\n"


def bundle(envelope: bytes) -> bytes:
    """A signed document as a Sigstore bundle, which cosign reads from version 3 on.

    Without the key's id: cosign 3.1 compares it with an id of its own, and refuses another.
    """
    found = msgspec.json.decode(envelope, type=Envelope)
    return msgspec.json.encode(
        {
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": found.signatures[0].keyid}},
            "dsseEnvelope": {
                "payloadType": found.payload_type,
                "payload": found.payload,
                "signatures": [{"sig": each.sig} for each in found.signatures],
            },
        }
    )


def verified(envelope: bytes, kind: str, key: PublicKey) -> bytes:
    """The document in an envelope.

    Raises:
        SigningError: it is of another media type, or this key has not signed it as it is.
    """
    try:
        found = msgspec.json.decode(envelope, type=Envelope)
        payload = _decoded(found.payload)
        signatures = [_decoded(each.sig) for each in found.signatures]
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error) as error:
        raise SigningError(f"this is no signed document: {error}") from error
    if found.payload_type != kind:
        raise SigningError(f"this is a signed {found.payload_type}, not a {kind}")
    for signature in signatures:
        try:
            key.verify(signature, signed_bytes(payload, kind), _ALGORITHM)
        except InvalidSignature:
            continue
        return payload
    raise SigningError(f"key {key_id(key)} has not signed this document as it is")


def signed_bytes(payload: bytes, kind: str) -> bytes:
    """What a signature is over: the media type and the document, each with its length."""
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)


def new_key() -> PrivateKey:
    """A key for a dry run."""
    return ec.generate_private_key(ec.SECP256R1())


def read_private_key(text: bytes) -> PrivateKey:
    """The private key in a PEM file.

    Raises:
        SigningError: there is none that can be used.
    """
    try:
        found = serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError) as error:  # the latter: it is encrypted
        raise SigningError(f"this is not {_KEYS} without a passphrase: {error}") from error
    if not isinstance(found, PrivateKey) or not isinstance(found.curve, ec.SECP256R1):
        raise SigningError(f"this is not {_KEYS}")
    return found


def read_public_key(text: bytes) -> PublicKey:
    """The public key in a PEM file.

    Raises:
        SigningError: there is none that can be used.
    """
    try:
        found = serialization.load_pem_public_key(text)
    except ValueError as error:
        raise SigningError(f"this is not the public half of {_KEYS}: {error}") from error
    if not isinstance(found, PublicKey) or not isinstance(found.curve, ec.SECP256R1):
        raise SigningError(f"this is not the public half of {_KEYS}")
    return found


def pem(key: PublicKey) -> bytes:
    """A public key as PEM."""
    return _encoded(key, serialization.Encoding.PEM)


def key_id(key: PublicKey) -> str:
    """The SHA-256 of a public key, by which recipients know it."""
    return hashlib.sha256(_encoded(key, serialization.Encoding.DER)).hexdigest()


def _encoded(key: PublicKey, encoding: serialization.Encoding) -> bytes:
    return key.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def _decoded(text: str) -> bytes:
    """What base64 stands for, in the one spelling that encoding gives it.

    Raises:
        binascii.Error: it is another spelling, or no base64.
    """
    found = base64.b64decode(text, validate=True)
    if _base64(found) != text:
        raise binascii.Error("not the spelling that encoding gives")
    return found


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
