"""The shipped script that makes keys keeps what it was told of sites, since a host is added by running it again."""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import nkeys
import pytest

from tests.e2e.deployed import make_secrets
from tests.integration.deploy.conftest import ROOT

HOSTS, NAMES = "gpu-001,gpu-017,gpu-018", "nats-0,nats-1,nats-2"


def user_of(seed: Path) -> str:
    """How a configuration names the user with this seed."""
    return f"nkey: {nkeys.from_seed(bytearray(seed.read_bytes().strip())).public_key.decode()}"


def test_sites_are_kept_when_a_host_is_added(tmp_path: Path) -> None:
    keys = make_secrets(tmp_path / "keys", HOSTS, NAMES, "paris=gpu-017,gpu-018", "rome=gpu-001")
    leaf = user_of(keys / "nats-leaf-paris.seed")
    assert leaf in (keys / "users.conf").read_text()
    make_secrets(keys, f"{HOSTS},gpu-019", NAMES)
    told = (keys / "users.conf").read_text()
    assert leaf in told and user_of(keys / "nats-leaf-rome.seed") in told
    assert user_of(keys / "nats-agent-gpu-019.seed") in told, "the new host"
    assert user_of(keys / "nats-agent-gpu-019.seed") not in (keys / "leaf-paris-users.conf").read_text()
    make_secrets(keys, f"{HOSTS},gpu-019", NAMES, "paris=gpu-017,gpu-018,gpu-019")
    assert (keys / "sites").read_text() == "rome=gpu-001\nparis=gpu-017,gpu-018,gpu-019\n", (
        "of one name the last counts"
    )
    assert leaf in (keys / "users.conf").read_text()
    assert user_of(keys / "nats-agent-gpu-019.seed") in (keys / "leaf-paris-users.conf").read_text()


def test_the_server_of_a_site_has_its_own_key_and_certificate_alone(tmp_path: Path) -> None:
    keys = make_secrets(tmp_path / "keys", HOSTS, NAMES, "paris=gpu-017,gpu-018")
    seed = (keys / "nats-leaf-paris.seed").read_text().strip()
    environment = keys / "leaf-paris.env"
    assert environment.read_text() == f"TENURE_NATS_LEAF={seed}\n" and environment.stat().st_mode & 0o077 == 0
    assert "$TENURE_NATS_LEAF" in (ROOT / "deploy" / "nats" / "leaf.conf").read_text()
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(keys / "leaf-paris.crt", keys / "leaf-paris.key")
    shown = ["openssl", "x509", "-in", str(keys / "leaf-paris.crt"), "-noout", "-ext", "subjectAltName"]
    names = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert names.split()[-1] == "DNS:leaf-paris", "it cannot pass for a server of the log"


@pytest.mark.parametrize("site", ["paris=gpu-099", "paris"])
def test_a_site_that_cannot_be_leaves_all_as_it_was(tmp_path: Path, site: str) -> None:
    keys = make_secrets(tmp_path / "keys", HOSTS, NAMES, "paris=gpu-017")
    before = {path.name: path.read_bytes() for path in (keys / "sites", keys / "users.conf")}
    command = ["sh", str(ROOT / "deploy" / "secrets.sh"), str(keys), HOSTS, NAMES, site]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "--site: " in done.stderr
    assert {name: (keys / name).read_bytes() for name in before} == before
