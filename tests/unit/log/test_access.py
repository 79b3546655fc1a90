"""How the log's servers may be reached: no secret in an address, nothing in the clear off this machine."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.log.access import Access, Tls, inbox_of


@pytest.mark.parametrize(
    "url",
    [
        "nats://token@127.0.0.1:4222",
        "nats://user:pass@127.0.0.1:4222",
        "nats://user:p@ss@127.0.0.1:4222",
        "tls://user:pass@nats-0:4222",
        "nats://127.0.0.1:4222,nats://user:pass@127.0.0.1:4223",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Refusal, match="--nats-key-file") as refused:
        Access(url=url)
    assert not any(secret in str(refused.value) for secret in ("pass", "p@ss", "token@", "user:"))


@pytest.mark.parametrize(
    "url", ["", "foo", "nats://", "http://h:1", "nats://h:port", "nats://h:99999", "tls://h:1,", "nats://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="nats://HOST:PORT"):
        Access(url=url)


@pytest.mark.parametrize("host", ["nats-0", "10.0.0.1", "[2001:db8::1]", "127.0.0.1.example.org", "0.0.0.0"])
def test_another_machine_is_reached_encrypted_or_on_purpose(host: str) -> None:
    with pytest.raises(Refusal, match=r"tls://HOST:PORT.*--nats-insecure"):
        Access(url=f"nats://{host}:4222")
    with pytest.raises(Refusal):
        Access(url=f"nats://127.0.0.1:4222,nats://{host}:4222")
    assert Access(url=f"tls://{host}:4222").encrypted
    assert Access(url=f"nats://{host}:4222", tls=Tls()).encrypted
    assert not Access(url=f"nats://{host}:4222", insecure=True).encrypted
    assert not Access(url=f"tls://{host}:4222").local


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "[::1]", "localhost"])
def test_this_machine_is_reached_as_it_is(host: str) -> None:
    access = Access(url=f"nats://{host}:4222")
    assert access.local
    assert not access.encrypted
    assert access.shown == f"{host}:4222"


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    seed = tmp_path / "placer.seed"
    seed.write_text("SU...")
    seed.chmod(0o640)
    with pytest.raises(Refusal, match="others may read"):
        Access(url="nats://127.0.0.1:4222", seed_file=seed).options()
    seed.chmod(0o600)
    assert (
        Access(url="nats://127.0.0.1:4222", client="placer", seed_file=seed).options()["inbox_prefix"]
        == "_INBOX_placer"
    )
    seed.unlink()
    with pytest.raises(Refusal, match="No such file"):
        Access(url="nats://127.0.0.1:4222", seed_file=seed).options()


def test_no_inbox_lies_inside_another() -> None:
    assert not f"{inbox_of('agent-a.b')}.x".startswith(f"{inbox_of('agent-a')}.")


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    junk = tmp_path / "ca.pem"
    junk.write_text("no certificate")
    with pytest.raises(Refusal, match="--nats-ca"):
        Access(url="tls://nats-0:4222", tls=Tls(ca=junk)).options()
