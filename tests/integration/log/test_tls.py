"""The log over TLS: certificates made here, a real nats-server, and every way in which the two may not fit."""

import asyncio
import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tenure.log.access import Access, Tls
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Unavailable
from tenure.runtime.nats_server import NatsServer
from tests.contract.log_facts import CLUSTER, intake

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; everything it makes lies in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.crt"
        self._write(self._make(self._name, self._key, None), self.file)

    def sign(self, name: str, address: str) -> tuple[Path, Path]:
        """The files of a certificate for an address, and of its key."""
        key, subject = (
            ec.generate_private_key(ec.SECP256R1()),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        )
        certificate, secret = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        self._write(self._make(subject, key, address), certificate)
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
        return certificate, secret

    def _make(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, address: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = (
            builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=address is None, path_length=None), critical=True)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    @staticmethod
    def _write(certificate: x509.Certificate, path: Path) -> None:
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, ours: Authority) -> Iterator[NatsServer]:
    yield from serving(tmp_path_factory.mktemp("tls"), ours, address="127.0.0.1", wants_ours=True)


def serving(root: Path, ours: Authority, *, address: str, wants_ours: bool) -> Iterator[NatsServer]:
    certificate, key = ours.sign("server", address)
    files = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{ours.file}"'
    tls = f"tls {{ {files}, verify: {str(wants_ours).lower()} }}\n"
    server = NatsServer(root, sync="default", also=tls)
    server.start()
    yield server
    server.stop()


def connect(server: NatsServer, tls: Tls | None, *, scheme: str = "tls") -> None:
    """Append one fact. Raises `Unavailable` with what stood in the way."""

    async def once() -> None:
        access = Access(url=f"{scheme}://127.0.0.1:{server.port}", tls=tls)
        log = await JetStreamLog.connect(access, cluster=CLUSTER, patience_s=5)
        await log.append([intake(1)])
        await log.close()

    asyncio.run(once())


def refused(server: NatsServer, tls: Tls | None, *, scheme: str = "tls") -> str:
    async def once() -> None:
        access = Access(url=f"{scheme}://127.0.0.1:{server.port}", tls=tls)
        await JetStreamLog.connect(access, cluster=CLUSTER, patience_s=0.5)

    with pytest.raises(Unavailable) as trouble:
        asyncio.run(once())
    return str(trouble.value)


def test_an_encrypted_connection_ends_without_a_warning(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    for server in serving(tmp_path, ours, address="127.0.0.1", wants_ours=False):
        with caplog.at_level("WARNING"):
            connect(server, Tls(ca=ours.file))
    assert not caplog.records


def test_a_role_with_a_certificate_is_let_in(server: NatsServer, ours: Authority) -> None:
    certificate, key = ours.sign("placer", "127.0.0.1")
    connect(server, Tls(ca=ours.file, certificate=certificate, key=key))


def test_a_role_without_one_is_not_where_the_server_wants_one(server: NatsServer, ours: Authority) -> None:
    assert "no NATS server answers" in refused(server, Tls(ca=ours.file))


def test_a_server_that_others_vouch_for_is_not_believed(server: NatsServer, tmp_path: Path) -> None:
    assert "certificate verify failed" in refused(server, Tls(ca=Authority(tmp_path, "others").file))
    assert "certificate verify failed" in refused(server, None)


def test_a_certificate_for_another_address_is_not_believed(tmp_path: Path, ours: Authority) -> None:
    for server in serving(tmp_path, ours, address="127.0.0.2", wants_ours=False):
        assert "IP address mismatch" in refused(server, Tls(ca=ours.file))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_a_server_that_does_not_encrypt_is_left_before_anything_is_said(
    tmp_path: Path, ours: Authority, scheme: str
) -> None:
    plain = NatsServer(tmp_path)
    plain.start()
    try:
        assert "does not encrypt" in refused(plain, Tls(ca=ours.file), scheme=scheme)
    finally:
        plain.stop()
