"""The lab's own certificate authority.

Every program in a lab authenticates with a certificate, as on a real cluster: with anonymous
kubelets or administrators only, a missing permission would show only on a user's cluster.
"""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

_VALID_FOR = dt.timedelta(days=365)
# Certificates stay valid when the machine's clock is set back a little.
_CLOCK_SLACK = dt.timedelta(hours=1)


class KeyPair(Struct, frozen=True):
    """The files of one identity.

    Args:
        certificate: PEM; for the service accounts' key pair, the public key.
        key: PEM, readable by its owner only.
    """

    certificate: Path
    key: Path


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _subject(user: str, groups: tuple[str, ...]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Authority:
    """Issues identities into a folder; existing ones are kept.

    Args:
        folder: holds ``ca.crt``, ``ca.key`` and a pair for each identity.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        folder.mkdir(parents=True, exist_ok=True)
        key_file = folder / "ca.key"
        if not self.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write_key(key_file, key)
            name = _subject("kubeshare-lab", ())
            pem = self._sign(key, name, signer=key, issuer=name, hosts=None)
            self.certificate.write_bytes(pem)
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        self._name = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject

    @staticmethod
    def _sign(
        key: ec.EllipticCurvePrivateKey,
        subject: x509.Name,
        *,
        signer: ec.EllipticCurvePrivateKey,
        issuer: x509.Name,
        hosts: tuple[str, ...] | None,
    ) -> bytes:
        """Make a certificate in PEM; ``hosts`` is None for the authority's own."""
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK)
            .not_valid_after(now + _VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=hosts is None, path_length=None), critical=True)
        )
        if hosts is not None:
            usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def identity(
        self, file: str, user: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> KeyPair:
        """A certificate for a user of the API or for a server.

        Args:
            file: the stem of its two files.
            user: the common name: what Kubernetes takes for the user's name.
            groups: the organisations: what Kubernetes takes for groups.
            hosts: names and addresses under which a server is reached.
        """
        pair = KeyPair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        if not pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write_key(pair.key, key)
            subject = _subject(user, groups)
            pem = self._sign(key, subject, signer=self._key, issuer=self._name, hosts=hosts)
            pair.certificate.write_bytes(pem)
        return pair

    def service_account_keys(self) -> KeyPair:
        """The key pair that signs and checks the tokens of service accounts."""
        pair = KeyPair(self.folder / "service-accounts.pub", self.folder / "service-accounts.key")
        if not pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write_key(pair.key, key)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            pair.certificate.write_bytes(public)
        return pair
