"""Tokens of a real issuer (discovery and JWKS over HTTP), and certificates of clients, on a real gateway."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from services.gateway.identity.authenticate import KEPT_MAX, KEPT_S, Authenticator
from services.gateway.identity.certificates import Certificates
from services.gateway.identity.issuer_keys import AGAIN_S, FRESH_S, IssuerKeys
from services.gateway.identity.issuer_keys import KEPT_S as KEYS_KEPT_S
from services.gateway.identity.oidc import OidcTokens
from services.gateway.identity.source import Credentials, Known
from services.gateway.refusals import Away, Unauthenticated
from tenure.domain.rights import Caller, Role
from tenure.events.intake import JobSubmitted
from tenure.runtime.identity_options import IdentityOptions, build_identity_options
from tenure.v1 import identity_pb2, identity_pb2_grpc, jobs_pb2
from tests.checks.certificates import Authority, Signed
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import Rig, good_job, play, refused
from tests.contract.issuer import AUDIENCE, Issuer, issuing

PEER = "ipv4:192.0.2.7:4711"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


class Clock:
    """Epoch seconds that a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def options_of(issuer: Issuer, **more: object) -> IdentityOptions:
    return build_identity_options({"issuer": issuer.address, "audience": AUDIENCE, **more})


def identified(source: OidcTokens, token: str) -> Known | None:
    return asyncio.run(source.identify(Credentials(peer=PEER, token=token)))


def rejected(source: OidcTokens, token: str, word: str) -> None:
    with pytest.raises(Unauthenticated, match=word) as caught:
        identified(source, token)
    assert token.split(".")[-1][:16] not in str(caught.value) or not token.split(".")[-1]


def test_a_good_token_is_its_user_with_groups_and_roles(issuer: Issuer) -> None:
    options = options_of(
        issuer, user_claim="email", roles={"gpu-admins": "admin"}, roles_claim="realm.roles", operators=["group:ops"]
    )
    source = OidcTokens(options, clock=time.time)
    token = issuer.token(email="ana@lab", groups=["chem", 7], realm={"roles": ["gpu-admins", "x"]})
    known = identified(source, token)
    assert known is not None
    assert known.caller == Caller(user="ana@lab", roles=frozenset({Role.ADMIN}), groups=frozenset({"chem"}))
    assert known.how == f"token of {issuer.address}"
    known = identified(source, issuer.token(email="olga@lab", groups="ops"))
    assert known is not None and known.caller.roles == {Role.OPERATOR}
    issuer.rotate("ec", curve=True, keep=True)
    source = OidcTokens(options, clock=time.time)
    assert identified(source, issuer.token(email="ana@lab")) is not None


def test_what_is_not_good_is_said(issuer: Issuer) -> None:
    source = OidcTokens(options_of(issuer, leeway="10s"), clock=time.time)
    now = time.time()
    rejected(source, issuer.token(lifetime_s=-30), "has expired; get a new one")
    rejected(source, issuer.token(nbf=now + 60), "is not valid yet")
    rejected(source, issuer.token(iat=now + 60), "is not valid yet")
    rejected(source, issuer.token(aud="grafana"), "another audience")
    rejected(source, issuer.token(aud=None), "lacks a claim")
    rejected(source, issuer.token(exp=None), "lacks a claim")
    rejected(source, issuer.token(sub=None), "no usable name")
    rejected(source, issuer.token("group:pis"), "no usable name")
    rejected(source, issuer.token(" ana"), "no usable name")
    rejected(source, issuer.token("ana\x1b[2J"), "control characters")
    rejected(source, "nonsense", "not a JWT")
    rejected(source, issuer.token()[:-8] + "AAAAAAAA", "signature")
    assert identified(source, issuer.token(iss="https://elsewhere.example")) is None


def test_the_leeway_counts_on_both_ends(issuer: Issuer) -> None:
    source = OidcTokens(options_of(issuer, leeway="30s"), clock=time.time)
    now = time.time()
    assert identified(source, issuer.token(lifetime_s=-10)) is not None
    assert identified(source, issuer.token(nbf=now + 10)) is not None
    rejected(source, issuer.token(lifetime_s=-40), "expired")
    rejected(source, issuer.token(nbf=now + 40), "not valid yet")


def test_forged_signatures_are_not_accepted(issuer: Issuer) -> None:
    """No signature; and the public key taken for the secret of an HMAC."""
    source = OidcTokens(options_of(issuer), clock=time.time)
    for algorithm in ("none", "None", "HS256", "HS512"):
        rejected(source, issuer.forged(algorithm, issuer.public_pem("k1")), "algorithm that is not accepted")
    issuer.extra_keys = [{"kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256"}]
    source = OidcTokens(options_of(issuer), clock=time.time)
    rejected(source, issuer.token(kid="shared"), "does not publish")


def test_a_key_is_used_with_its_own_algorithm_only(issuer: Issuer) -> None:
    issuer.rotate("ec", curve=True, keep=True)
    source = OidcTokens(options_of(issuer), clock=time.time)
    rejected(source, issuer.token(key="ec", kid="k1"), "does not fit its algorithm")
    rejected(source, issuer.token(key="k1", kid="ec"), "does not fit its algorithm")
    assert identified(source, issuer.token(key="k1")) is not None


def test_keys_rotate(issuer: Issuer) -> None:
    """A token that names a new key makes the issuer be asked, though not at once for each unknown name."""
    clock = Clock()
    source = OidcTokens(options_of(issuer), clock=clock)
    old = issuer.token()
    assert identified(source, old) is not None
    issuer.rotate("k2")
    new = issuer.token()
    rejected(source, new, "does not publish")
    clock.now += AGAIN_S
    assert identified(source, new) is not None
    rejected(source, old, "does not publish")
    asked = issuer.asked["/keys"]
    for number in range(20):
        rejected(source, issuer.token(kid=f"made-up-{number}"), "does not publish")
    assert issuer.asked["/keys"] == asked
    clock.now += FRESH_S + 1
    assert identified(source, new) is not None
    assert issuer.asked["/keys"] == asked + 1, "keys that grow old are read again"


def test_while_the_issuer_is_away_known_keys_go_on(issuer: Issuer) -> None:
    clock = Clock()
    source = OidcTokens(options_of(issuer), clock=clock)
    known, unknown = issuer.token(lifetime_s=10**6), issuer.token(kid="k9")
    assert identified(source, known) is not None
    issuer.broken = True
    clock.now += FRESH_S + 1
    assert identified(source, known) is not None
    with pytest.raises(Away, match="cannot be asked for its keys"):
        identified(source, unknown)
    clock.now += KEYS_KEPT_S + 1
    with pytest.raises(Away, match="cannot be asked for its keys"):
        identified(source, known)
    issuer.broken = False
    clock.now += AGAIN_S
    assert identified(source, known) is not None


def test_an_issuer_that_was_never_there_is_said(issuer: Issuer) -> None:
    issuer.broken = True
    with pytest.raises(Away, match="500"):
        identified(OidcTokens(options_of(issuer), clock=time.time), issuer.token())
    issuer.broken, issuer.claimed_issuer = False, "https://elsewhere.example"
    with pytest.raises(Away, match="is not about the issuer"):
        identified(OidcTokens(options_of(issuer), clock=time.time), issuer.token())
    issuer.claimed_issuer = issuer.address
    issuer.keys = {}
    keys = IssuerKeys(issuer.address, clock=time.time)
    with pytest.raises(Away, match="no usable signing key"):
        asyncio.run(keys.key("k1"))


class Counting:
    """A source that counts how often it is asked."""

    def __init__(self, *, until: float) -> None:
        self.asked, self.until = 0, until

    async def identify(self, credentials: Credentials) -> Known:
        self.asked += 1
        return Known(caller=Caller(user="ana"), how="test", until=self.until)


def test_a_verified_token_is_kept_until_it_expires() -> None:
    clock = Clock()

    async def scenario() -> None:
        source = Counting(until=clock.now + 60)
        authenticator = Authenticator([source], clock=clock)
        for port in (1, 2):
            identity = await authenticator.identify(Credentials(peer=f"ipv4:192.0.2.7:{port}", token="a"))
            assert identity.address == f"192.0.2.7:{port}"
        assert source.asked == 1
        await authenticator.identify(Credentials(peer=PEER, token="b"))
        assert source.asked == 2
        clock.now += 60
        await authenticator.identify(Credentials(peer=PEER, token="a"))
        assert source.asked == 3
        source.until = clock.now + 10**6
        await authenticator.identify(Credentials(peer=PEER, token="a"))
        clock.now += KEPT_S
        await authenticator.identify(Credentials(peer=PEER, token="a"))
        assert source.asked == 5, "looked at again after a while, so that a withdrawn key is noticed"
        for number in range(KEPT_MAX + 5):
            await authenticator.identify(Credentials(peer=PEER, token=f"t{number}"))
        assert len(authenticator._verified) == KEPT_MAX

    asyncio.run(scenario())


class Everything:
    """A source that takes every certificate, and no token."""

    async def identify(self, credentials: Credentials) -> Known | None:
        if credentials.token:
            raise Unauthenticated(field="token", problem="no good", fix="get a new one")
        return Known(caller=Caller(user="ana"), how="test", until=time.time() + 60)


def test_a_certificate_that_is_known_is_no_token() -> None:
    """Certificates are no secrets: whoever sends the text of another's in the place of a token is not them."""
    certificate = b"-----BEGIN CERTIFICATE----- of ana"

    async def scenario() -> None:
        authenticator = Authenticator([Everything()], clock=time.time)
        await authenticator.identify(Credentials(peer=PEER, certificate=certificate))
        with pytest.raises(Unauthenticated):
            await authenticator.identify(Credentials(peer=PEER, token=certificate.decode()))

    asyncio.run(scenario())


def test_the_gateway_takes_the_issuers_word_and_nobody_elses(issuer: Issuer) -> None:
    """With an issuer the operating system is asked no more: a proxy on this machine would be everybody."""

    async def scenario(rig: Rig) -> None:
        await refused(rig.jobs.List(jobs_pb2.ListJobsRequest()), "UNAUTHENTICATED", "TENURE_TOKEN")
        called = {"metadata": (("authorization", f"Bearer {issuer.token()}"),)}
        await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(user="")), **called)
        (fact,) = [one.fact for one in await rig.recorded() if isinstance(one.fact, JobSubmitted)]
        assert fact.origin is not None
        assert (fact.spec.user, fact.origin.how) == ("ana", f"token of {issuer.address}")
        asked = issuer.asked["/keys"]
        expired = {"metadata": (("authorization", f"Bearer {issuer.token(lifetime_s=-60)}"),)}
        await refused(rig.jobs.List(jobs_pb2.ListJobsRequest(), **expired), "UNAUTHENTICATED", "has expired")
        for _ in range(5):
            await rig.jobs.List(jobs_pb2.ListJobsRequest(), **called)
        assert issuer.asked["/keys"] == asked
        issuer.broken = True
        new = {"metadata": (("authorization", f"Bearer {issuer.token(kid='k7')}"),)}
        code = (await refused(rig.jobs.List(jobs_pb2.ListJobsRequest(), **new), "UNAUTHENTICATED")).details() or ""
        assert "does not publish" in code

    play(MemoryUnderTest(), scenario, identity=options_of(issuer))


def mutual_tls(folder: Path, **more: object) -> tuple[Authority, IdentityOptions]:
    """An authority, and a gateway's options that ask for its certificates."""
    authority = Authority(folder)
    server = authority.server("gateway.lab.example")
    files = {
        "client_ca": str(authority.certificate),
        "tls_certificate": str(server.certificate),
        "tls_key": str(server.key),
    }
    return authority, build_identity_options({**files, **more})


def shown(authority: Authority, person: Signed | None) -> grpc.ChannelCredentials:
    """How a client with that certificate connects."""
    root = authority.certificate.read_bytes()
    if person is None:
        return grpc.ssl_channel_credentials(root)
    return grpc.ssl_channel_credentials(root, person.key.read_bytes(), person.certificate.read_bytes())


def play_with_tls(
    options: IdentityOptions, credentials: grpc.ChannelCredentials, scenario: Callable[[Rig], Awaitable[None]]
) -> None:
    play(MemoryUnderTest(), scenario, identity=options, credentials=credentials)


def test_a_certificate_is_its_user(tmp_path: Path) -> None:
    authority, options = mutual_tls(tmp_path, operators=["ana"])

    async def scenario(rig: Rig) -> None:
        answer = await identity_pb2_grpc.IdentityStub(rig.channel).WhoAmI(identity_pb2.WhoAmIRequest())
        assert (answer.user, list(answer.roles), answer.how) == ("ana", ["operator"], "certificate of CN=CA of the lab")

    play_with_tls(options, shown(authority, authority.person("ana")), scenario)


@pytest.mark.parametrize("kind", ["none", "another authority's", "expired"])
def test_without_a_good_certificate_there_is_no_connection(tmp_path: Path, kind: str) -> None:
    authority, options = mutual_tls(tmp_path)
    expired = authority.person("old", life=-datetime.timedelta(hours=1))
    other = Authority(tmp_path, "other").person("ana")
    person = {"none": None, "another authority's": other, "expired": expired}[kind]

    async def scenario(rig: Rig) -> None:
        await refused(rig.jobs.List(jobs_pb2.ListJobsRequest(), timeout=5), "UNAVAILABLE")

    play_with_tls(options, shown(authority, person), scenario)


def test_names_in_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    names = [
        x509.RFC822Name("ana@lab.example"),
        x509.UniformResourceIdentifier("spiffe://lab/ana"),
        x509.DNSName("a.example"),
        x509.DNSName("b.example"),
    ]
    pem = authority.person("Ana", alternative=names).certificate.read_bytes()

    def user(kind: str, clock: Callable[[], float] = time.time) -> str:
        source = Certificates(kind, clock=clock, roles_of=lambda _: frozenset())
        known = asyncio.run(source.identify(Credentials(peer=PEER, certificate=pem)))
        assert known is not None
        return known.caller.user

    assert user("common-name") == "Ana"
    assert user("email") == "ana@lab.example"
    assert user("uri") == "spiffe://lab/ana"
    with pytest.raises(Unauthenticated, match="has 2 names of the kind dns"):
        user("dns")
    with pytest.raises(Unauthenticated, match="expired since the connection was made"):
        user("email", clock=lambda: time.time() + 2 * 86_400)
    pem = authority.person("plain").certificate.read_bytes()
    with pytest.raises(Unauthenticated, match="has 0 names"):
        user("email")
