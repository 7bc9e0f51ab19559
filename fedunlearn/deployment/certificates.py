"""A private certificate authority, the server's certificate, and the nodes' keys.

TLS lets nodes know the server; the nodes' EC P-384 keys, in the OpenSSH form that Flower wants,
let the server know the nodes. Everything is returned as bytes; nothing is written or shown here.
"""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACK = datetime.timedelta(hours=1)  # clocks of nodes may be behind
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, repr=False)
class KeyPair:
    """A private key and what goes with it in public: a certificate, or a public key."""

    private: bytes
    public: bytes


@dataclass(frozen=True, repr=False)
class Authority:
    """A certificate authority of one's own."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pair(self) -> KeyPair:
        """Its key and certificate, PEM."""
        return KeyPair(_pem(self.key), _certificate_pem(self.certificate))


def make_authority(now: datetime.datetime, *, days: int) -> Authority:
    """Make an authority that may sign certificates of servers and nothing below them."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedunlearn private CA")
    certificate = (
        _builder(key, name, name, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    return Authority(key, certificate)


def make_server_certificate(
    authority: Authority, hosts: Iterable[str], now: datetime.datetime, *, days: int
) -> KeyPair:
    """Make the server's key and certificate.

    Args:
        authority: signs it.
        hosts: names and addresses for which it is valid; those of loopback are added, over which
            the gate and the operator reach the SuperLink.
        now: it is valid from an hour before.
        days: how long.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    names = list(dict.fromkeys((*hosts, *LOCAL)))
    issuer = authority.certificate.subject
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(key, _name(names[0]), issuer, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, names))), critical=False)
        .add_extension(of_issuer, critical=False)
        .sign(authority.key, hashes.SHA384())
    )
    return KeyPair(_pem(key), _certificate_pem(certificate))


def make_node_key(comment: str) -> KeyPair:
    """Make a node's key pair as ``ssh-keygen -t ecdsa -b 384`` does."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private, public + f" {comment}\n".encode())


def _builder(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
