"""Certificates for tests: an authority, and what it signs for servers and for people."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates in a folder of its own."""

    def __init__(self, folder: Path, name: str = "lab") -> None:
        self.folder = folder / f"ca-{name}"
        self.folder.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA of the {name}")])
        builder = _valid(x509.CertificateBuilder().subject_name(self._name).issuer_name(self._name), DAY)
        builder = builder.public_key(self._key.public_key())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.certificate = self.folder / "ca.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str) -> Signed:
        """A server of these names, and of 127.0.0.1."""
        addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self._sign("server", [*(x509.DNSName(name) for name in names), *addresses])

    def person(self, name: str, *, alternative: "list[x509.GeneralName] | None" = None, life: object = DAY) -> Signed:
        """A person whose common name is `name`; `life` may be over already."""
        return self._sign(name, alternative or [], life=life)

    def _sign(self, name: str, names: "list[x509.GeneralName]", *, life: object = DAY) -> Signed:
        assert isinstance(life, datetime.timedelta)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _valid(x509.CertificateBuilder().subject_name(subject).issuer_name(self._name), life)
        builder = builder.public_key(key.public_key())
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        signed = Signed(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        signed.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        signed.key.touch(mode=0o600)
        signed.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return signed


def _valid(builder: x509.CertificateBuilder, life: datetime.timedelta) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - 2 * DAY).not_valid_after(now + life)
