"""The key of development tokens: made once, for its owner alone."""

import stat
import threading
from pathlib import Path

import jwt
import pytest

from tenure.domain.refusal import Refusal
from tenure.domain.rights import Role
from tenure.runtime.local_tokens import AUDIENCE, ISSUER, key_file, load_key, make_key

NOW = 1_700_000_000_000


def test_a_key_is_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    make_key(path)
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    make_key(path)
    assert path.read_bytes() == first
    assert [one.name for one in path.parent.iterdir()] == ["key.pem"]


def test_two_that_make_it_at_once_have_one(tmp_path: Path) -> None:
    makers = [threading.Thread(target=make_key, args=(key_file(tmp_path),)) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert load_key(key_file(tmp_path)).name


def test_a_token_says_who_and_until_when(tmp_path: Path) -> None:
    make_key(key_file(tmp_path))
    key = load_key(key_file(tmp_path))
    token = key.sign(user="ana", roles=[Role.VIEWER, Role.ADMIN], now=NOW, lifetime_ms=60_000)
    options = {"verify_exp": False, "verify_iat": False}
    public = key.private.public_key()
    claims = jwt.decode(token, public, algorithms=["EdDSA"], audience=AUDIENCE, issuer=ISSUER, options=options)
    assert (claims["sub"], claims["roles"], claims["exp"] - claims["iat"]) == ("ana", ["admin", "viewer"], 60)
    assert jwt.get_unverified_header(token)["kid"] == key.name


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_key(key_file(tmp_path))
    key_file(tmp_path).chmod(0o644)
    with pytest.raises(Refusal, match="can be read by others"):
        load_key(key_file(tmp_path))


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(Refusal, match="cannot be read"):
        load_key(path)
    path.touch(mode=0o600)
    path.write_text("nonsense")
    with pytest.raises(Refusal, match="not a private key"):
        load_key(path)
