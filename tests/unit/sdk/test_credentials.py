"""What a client shows, from its environment; and what it does not send."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.sdk.credentials import Credentials


def test_nothing_said_is_nothing_shown() -> None:
    credentials = Credentials.from_environment({})
    assert credentials == Credentials()
    assert not credentials.names_somebody
    assert credentials.metadata("127.0.0.1:1") == ()


def test_a_token_goes_along_and_is_in_no_repr() -> None:
    credentials = Credentials.from_environment({"TENURE_TOKEN": " a.b.c\n"})
    assert credentials.metadata("localhost:1") == (("authorization", "Bearer a.b.c"),)
    assert "a.b.c" not in repr(credentials)


def test_a_token_file_is_read_again_at_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    credentials = Credentials.from_environment({"TENURE_TOKEN_FILE": str(file)})
    assert credentials.names_somebody
    for token in ("a.b.c", "d.e.f"):
        file.write_text(token + "\n")
        assert credentials.metadata("127.0.0.1:1") == (("authorization", f"Bearer {token}"),)


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o640)
    credentials = Credentials(token_file=file)
    with pytest.raises(Refusal, match=r"can be read by others \(mode 640\); chmod 600") as caught:
        credentials.metadata("127.0.0.1:1")
    assert "secret" not in str(caught.value)
    with pytest.raises(Refusal, match="cannot be read: No such file"):
        Credentials(token_file=tmp_path / "none").metadata("127.0.0.1:1")


def test_a_token_is_not_sent_in_the_open() -> None:
    with pytest.raises(Refusal, match="TENURE_TLS_CA"):
        Credentials(token="a.b.c").metadata("gateway.lab:7733")
    assert Credentials(token="a.b.c", insecure=True).metadata("gateway.lab:7733")
    assert Credentials(token="a.b.c", tls=True).metadata("gateway.lab:7733")


@pytest.mark.parametrize("token", ["a b", "é", "a\tb", "a\r\nb"])
def test_what_no_token_holds_is_refused(token: str) -> None:
    with pytest.raises(Refusal, match="token: holds what no token has") as caught:
        Credentials(token=token).metadata("127.0.0.1:1")
    assert token not in str(caught.value)


def test_tls_is_spoken_where_something_of_it_is_given(tmp_path: Path) -> None:
    assert Credentials.from_environment({"TENURE_TLS": "yes"}).tls
    assert Credentials.from_environment({"TENURE_TLS_CA": "ca.pem"}).tls
    both = {"TENURE_TLS_CERT": "a.pem", "TENURE_TLS_KEY": "a.key"}
    assert Credentials.from_environment(both).tls
    assert not Credentials.from_environment({"TENURE_TLS": "no"}).tls
    with pytest.raises(Refusal, match=r"TENURE_TLS_CA: .* cannot be read"):
        Credentials(ca=tmp_path / "none").pem()


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"TENURE_TLS_CERT": "a.pem"}, "TENURE_TLS_KEY"),
        ({"TENURE_TLS_KEY": "a.key"}, "TENURE_TLS_CERT"),
        ({"TENURE_TLS": "perhaps"}, "TENURE_TLS"),
        ({"TENURE_INSECURE": "x"}, "TENURE_INSECURE"),
    ],
)
def test_what_makes_no_sense_is_named(environment: dict[str, str], field: str) -> None:
    with pytest.raises(Refusal) as caught:
        Credentials.from_environment(environment)
    assert caught.value.field == field
