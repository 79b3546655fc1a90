"""The section `identity:`: from the file, the environment and flags; what is refused, and how it says so."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.domain.rights import Caller, Role
from tenure.runtime.identity_options import (
    IDENTITY,
    IdentityOptions,
    build_identity_options,
    certificate_name,
    check_reach,
)
from tenure.runtime.settings.given import load_settings
from tests.checks.certificates import Authority

ISSUER = {"issuer": "https://login.lab.example", "audience": "tenure"}


def test_nothing_said_is_the_embedded_default() -> None:
    assert build_identity_options({}) == IdentityOptions()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "tenure.yaml"
    config.write_text(
        "identity:\n  issuer: https://a.example\n  audience: file\n  user_claim: file\n"
        "  roles: {gpu-admins: admin}\n  operators: [olga, 'group:ops']\n"
    )
    gateway = load_settings(
        role="gateway",
        config=config,
        environment={"TENURE_IDENTITY_AUDIENCE": "environment", "TENURE_IDENTITY_USER_CLAIM": "x", "HOME": "/"},
        sets=["identity.user_claim=flag", "lookback=7d"],
    )
    options = build_identity_options(gateway.section(IDENTITY))
    assert (options.issuer, options.audience, options.user_claim) == ("https://a.example", "environment", "flag")
    assert options.roles == {"gpu-admins": Role.ADMIN}
    assert options.operators == ("olga", "group:ops")


def test_lists_and_mappings_in_a_flag() -> None:
    options = build_identity_options({"admins": "ana, group:pis", "roles": "a=admin,b=viewer", "leeway": "1m"})
    assert options.admins == ("ana", "group:pis")
    assert options.roles == {"a": Role.ADMIN, "b": Role.VIEWER}
    assert options.leeway_ms == 60_000
    assert options.roles_of(Caller(user="x", groups=frozenset({"pis"}))) == {Role.ADMIN}
    assert options.roles_of(Caller(user="pis")) == frozenset()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"isuer": "x"}, ["identity.isuer", "did you mean issuer?"]),
        ({"issuer": "https://a.example"}, ["identity.audience", "missing"]),
        ({"audience": "x"}, ["identity.issuer", "missing"]),
        ({"issuer": "http://a.example", "audience": "x"}, ["identity.issuer", "https"]),
        ({"issuer": "file:///etc/passwd", "audience": "x"}, ["identity.issuer", "https"]),
        ({"roles": {"x": "admim"}}, ["identity.roles.'x'", "did you mean admin?"]),
        ({"roles": {"x": "manager"}}, ["no role", "budget tree"]),
        ({"roles": ["x"]}, ["identity.roles", "mapping"]),
        ({"admins": 7}, ["identity.admins", "list"]),
        ({"user_claim": ""}, ["identity.user_claim"]),
        ({"leeway": "10m"}, ["identity.leeway", "5 minutes"]),
        ({"leeway": "x"}, ["identity.leeway"]),
        ({"client_ca": "nowhere.pem"}, ["identity.client_ca", "no readable file"]),
        ({"os_users": "perhaps"}, ["identity.os_users", "true or false"]),
        ({"certificate_name": "emial"}, ["identity.certificate_name", "did you mean email?"]),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(values: dict[str, object], words: list[str]) -> None:
    with pytest.raises(Refusal) as caught:
        build_identity_options(values)
    for word in words:
        assert word in str(caught.value)


def test_a_certificate_needs_its_key_and_a_client_ca_needs_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server("gateway.lab.example")
    with pytest.raises(Refusal, match=r"identity\.tls_key: missing"):
        build_identity_options({"tls_certificate": str(server.certificate)})
    with pytest.raises(Refusal, match=r"identity\.client_ca.*TLS"):
        build_identity_options({"client_ca": str(authority.certificate)})
    whole = {"tls_certificate": str(server.certificate), "tls_key": str(server.key)}
    assert certificate_name(build_identity_options(whole)) == "gateway.lab.example"
    assert certificate_name(IdentityOptions()) == ""
    with pytest.raises(Refusal, match="no certificate"):
        certificate_name(build_identity_options({**whole, "tls_certificate": str(server.key)}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "[::1]", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_reach(host, IdentityOptions(), local_tokens=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "gateway.lab", "localhost.lab", "127.0.0.1.nip.io"])
def test_what_others_reach_needs_an_identity_and_tls(tmp_path: Path, host: str) -> None:
    server = Authority(tmp_path).server("gateway.lab.example")
    tls = {"tls_certificate": str(server.certificate), "tls_key": str(server.key)}
    with pytest.raises(Refusal, match="nobody who calls there could be known"):
        check_reach(host, build_identity_options(tls), local_tokens=False)
    with pytest.raises(Refusal, match="without TLS"):
        check_reach(host, build_identity_options(ISSUER), local_tokens=False)
    check_reach(host, build_identity_options({**tls, **ISSUER}), local_tokens=False)
    check_reach(host, build_identity_options(tls), local_tokens=True)
    check_reach(host, build_identity_options({**ISSUER, "insecure_plaintext": True}), local_tokens=False)
