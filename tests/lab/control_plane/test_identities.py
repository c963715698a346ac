"""Certificates and kubeconfigs: who is who in a lab."""

import base64
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _values(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(one.value) for one in certificate.subject.get_attributes_for_oid(oid)]


def test_a_kubelets_certificate_names_its_node_and_the_group_of_nodes(authority: Authority) -> None:
    pair = authority.identity("n1", "system:node:n1", ("system:nodes",), ("n1", "10.0.0.1"))

    certificate = _certificate(pair.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert _values(certificate, NameOID.COMMON_NAME) == ["system:node:n1"]
    assert _values(certificate, NameOID.ORGANIZATION_NAME) == ["system:nodes"]
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


def test_an_identity_is_signed_by_the_labs_own_authority(authority: Authority) -> None:
    pair = authority.identity("admin", "admin")

    _certificate(pair.certificate).verify_directly_issued_by(_certificate(authority.certificate))


def test_an_identity_that_is_there_is_kept(authority: Authority) -> None:
    first = authority.identity("admin", "admin").certificate.read_bytes()
    again = Authority(authority.folder).identity("admin", "admin").certificate.read_bytes()

    assert first == again


def test_no_key_is_readable_by_others(authority: Authority) -> None:
    authority.identity("admin", "admin")
    authority.service_account_keys()

    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in authority.folder.glob("*.key")
    }
    assert set(modes.values()) == {0o600}


def test_a_kubeconfig_carries_everything_with_it(authority: Authority, tmp_path: Path) -> None:
    pair = authority.identity("admin", "admin")

    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "lab", "https://10.0.0.2:6443", authority.certificate, pair)

    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == "lab"
    assert document["clusters"][0]["cluster"]["server"] == "https://10.0.0.2:6443"
    data = document["users"][0]["user"]["client-certificate-data"]
    assert base64.b64decode(data) == pair.certificate.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
