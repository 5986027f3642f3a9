"""TLS for a SuperLink: an authority of one's own, the certificate that it signs, and files for their owner alone."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpu.errors import ConfigError

DAYS, AUTHORITY_DAYS = 365, 3650
"""how long a server's certificate is good for, and that of the authority, which every node has"""
PEM = serialization.Encoding.PEM
LONGEST_NAME = 64
"""letters of a common name, which nobody compares: hosts are among the alternative names"""


@dataclass(frozen=True)
class Certificates:
    """A folder with a server's certificate and key, and the certificate of the authority that signs them."""

    folder: Path
    secrets: Path | None = None
    """where the authority's key is, if not there"""

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    @property
    def authority_key(self) -> Path:
        """The authority's private key, which may be kept elsewhere until it is needed."""
        return (self.secrets or self.folder) / "authority.key"


def write_certificates(files: Certificates, hosts: Sequence[str]) -> None:
    """Write certificates and keys of a SuperLink that is reached by those names or addresses, and of its authority.

    The authority's key is kept to renew the server's certificate with; it is for the owner alone, like the server's.
    """
    files.folder.mkdir(parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("fedpu trial authority")
    ca = (
        _certificate(issuer, issuer, authority.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    files.authority.write_bytes(ca.public_bytes(PEM))
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    files.certificate.write_bytes(_leaf(issuer, authority, hosts[0], names, server.public_key()))
    for path, key in ((files.key, server), (files.authority_key, authority)):
        write_secret(path, key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


def renew_certificate(files: Certificates) -> None:
    """Write a new certificate for the same server and names, of the same authority: whoever trusts that notices
    nothing.
    """
    authority, old = _read_authority(files), read_certificate(files.certificate)
    trusted = read_certificate(files.authority)
    if trusted.public_key() != authority.public_key() or old.issuer != trusted.subject:
        raise ConfigError(
            f"'{files.certificate}' is not of the authority that 'fedpu deploy init' made, so that it can't be renewed "
            "here. Put a new one of your own authority in its place: a server that runs takes it up."
        )
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != old.public_key():
        raise ConfigError(f"'{files.key}' is not the key of '{files.certificate}'.")
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    common = str(old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    new = files.certificate.with_suffix(".new")
    new.write_bytes(_leaf(trusted.subject, authority, common, names, key.public_key()))
    new.replace(files.certificate)  # all of it at once: a server that runs looks for it


def days_left(certificate: Path) -> float:
    """Return how many days a certificate is still good for."""
    left = read_certificate(certificate).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left / datetime.timedelta(days=1)


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The certificate '{path}' can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is no certificate ({error}).") from error


def _read_authority(files: Certificates) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(files.authority_key.read_bytes(), None)
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no '{files.authority_key}', with which certificates are renewed. If it is kept elsewhere, put "
            "it there for as long; if it was never kept, 'fedpu deploy init' makes a new deployment."
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"'{files.authority_key}' can't be read ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"'{files.authority_key}' is not the key that 'fedpu deploy init' made.")
    return key


def _leaf(
    issuer: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
    common: str,
    names: x509.SubjectAlternativeName,
    key: ec.EllipticCurvePublicKey,
) -> bytes:
    """Return a server's certificate, signed."""
    leaf = (
        _certificate(_name(common[:LONGEST_NAME]), issuer, key, DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    return leaf.public_bytes(PEM)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not sign,
        encipher_only=False,
        decipher_only=False,
    )
