"""The section `identity:` of the configuration: where the gateway knows its callers from, and its TLS.

In the environment and in flags, lists and mappings are written as `a,b` and `x=admin,y=operator`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tenure.domain.loopback import is_loopback
from tenure.domain.nearest import did_you_mean, listed, shown, unknown_key
from tenure.domain.refusal import Refusal
from tenure.domain.rights import GROUP, Caller, Role
from tenure.domain.units import SECOND, Millis, parse_duration

IDENTITY = "identity"
CERTIFICATE_NAMES = ("common-name", "email", "uri", "dns")
LEEWAY_MAX = 300 * SECOND
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """The sources of identity. All empty: the embedded default, where the operating system says who calls."""

    issuer: str = ""
    """Of OIDC: its address, as its tokens name it in `iss`."""
    audience: str = ""
    user_claim: str = "sub"
    groups_claim: str = "groups"
    roles_claim: str = "roles"
    roles: Mapping[str, Role] = dataclasses.field(default_factory=dict)
    """What a value of the roles claim means here. Values that are not named mean nothing."""
    leeway_ms: Millis = 30 * SECOND
    """How far the clocks of the issuer and of this machine may be apart."""
    admins: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """Users and `group:NAME` that have a role whatever their token says."""
    client_ca: Path | None = None
    """Who signs the certificates of clients. With it, every client must have one."""
    certificate_name: str = "common-name"
    """What of a certificate is the user."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    """What clients on this machine check the gateway's certificate against; None: what the system trusts."""
    os_users: bool | None = None
    """Know callers by the user of their connection. None: on loopback, where there is neither issuer nor client CA."""
    insecure_plaintext: bool = False
    """Answer without TLS on an address that others reach: something else encrypts it."""

    def roles_of(self, caller: Caller) -> frozenset[Role]:
        """The roles that the lists give."""
        lists = (
            (Role.ADMIN, self.admins),
            (Role.OPERATOR, self.operators),
            (Role.VIEWER, self.viewers),
            (Role.AGENT, self.agents),
        )
        return frozenset(role for role, names in lists if caller.is_among(names))

    @property
    def knows_elsewhere(self) -> bool:
        """Whether callers from other machines can be known."""
        return bool(self.issuer or self.client_ca)


def build_identity_options(values: Mapping[str, object]) -> IdentityOptions:
    """The options from the section as people write it. Raises `Refusal` with the key and the fix."""
    for key in values:
        if key not in READERS:
            raise unknown_key(key, known=READERS, where=IDENTITY)
    chosen = {_FIELDS.get(key, key): READERS[key](value, key) for key, value in values.items()}
    options = IdentityOptions(**chosen)  # type: ignore[arg-type]
    _check_together(options)
    return options


def check_reach(host: str, options: IdentityOptions, *, local_tokens: bool) -> None:
    """Raise `Refusal` for an address that others reach where nobody could be known, or without TLS.

    `local_tokens`: there is a key whose tokens are believed.
    """
    if is_loopback(host):
        return
    if not options.knows_elsewhere and not local_tokens:
        raise Refusal(
            field="--listen",
            problem=f"{host} is not loopback, and nobody who calls there could be known",
            fix="set identity.issuer and identity.audience (OIDC), or identity.client_ca (certificates), or make a key "
            "with `tenure token create`; or listen on 127.0.0.1",
        )
    if options.tls_certificate is None and not options.insecure_plaintext:
        raise Refusal(
            field="--listen",
            problem=f"{host} is not loopback, and without TLS tokens could be read on their way",
            fix="set identity.tls_certificate and identity.tls_key, or listen on 127.0.0.1; only where something else "
            "encrypts every connection, set identity.insecure_plaintext=true",
        )


def certificate_name(options: IdentityOptions) -> str:
    """A name in the gateway's certificate, for clients that call it by another; empty: no TLS. Raises `Refusal`."""
    if options.tls_certificate is None:
        return ""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_pem_x509_certificate(options.tls_certificate.read_bytes())
    except ValueError as error:
        raise _bad("tls_certificate", str(options.tls_certificate), "no certificate", "name a PEM file") from error
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName) + [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]
    except x509.ExtensionNotFound:
        found = []
    found += [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not found:
        fix = "use one with a subject alternative name"
        raise _bad("tls_certificate", str(options.tls_certificate), "without a name in it", fix)
    return found[0]


def _check_together(options: IdentityOptions) -> None:
    if options.issuer:
        parts = urlsplit(options.issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise _bad("issuer", options.issuer, "no https address", "write https://..., as its tokens have it in iss")
    if bool(options.issuer) != bool(options.audience):
        missing, there = ("audience", "issuer") if options.issuer else ("issuer", "audience")
        fix = "name the audience that tokens for tenure have" if missing == "audience" else "name the issuer of tokens"
        raise Refusal(field=f"identity.{missing}", problem=f"missing beside identity.{there}", fix=fix)
    if (options.tls_certificate is None) != (options.tls_key is None):
        missing = "tls_key" if options.tls_key is None else "tls_certificate"
        raise Refusal(field=f"identity.{missing}", problem="missing", fix="give a certificate and its key, or neither")
    if options.client_ca is not None and options.tls_certificate is None:
        raise Refusal(
            field="identity.client_ca",
            problem="certificates of clients are shown in TLS only",
            fix="set identity.tls_certificate and identity.tls_key as well",
        )


def _text(value: object, _key: str) -> str:
    return str(value).strip()


def _bad(key: str, value: object, problem: str, fix: str) -> Refusal:
    return Refusal(field=f"identity.{key}", problem=f"{shown(value)} is {problem}", fix=fix)


def _claim(value: object, key: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _bad(key, value, "no name of a claim", "name a claim of the token, such as sub or groups")
    return value.strip()


def _names(value: object, key: str) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _bad(key, value, "no list of names", f"write a list of users and {GROUP}NAME")
    return tuple(name.strip() for name in names if name.strip())


def _roles(value: object, _key: str) -> dict[str, Role]:
    pairs = dict(pair.partition("=")[::2] for pair in value.split(",")) if isinstance(value, str) else value
    if not isinstance(pairs, dict) or not all(isinstance(name, str) for name in pairs):
        raise _bad("roles", value, "no mapping", "write 'value-of-the-claim: admin', one a line")
    known = [role.value for role in Role]
    for name, role in pairs.items():
        if role not in known:
            near = did_you_mean(str(role), known)
            raise Refusal(
                field=f"identity.roles.{shown(name)}",
                problem=f"{shown(role)} is no role",
                fix=f"{near}use one of {listed(known)}; managers and members are named in the budget tree",
            )
    return {name.strip(): Role(role) for name, role in pairs.items()}


def _leeway(value: object, _key: str) -> Millis:
    leeway = parse_duration(str(value), field="identity.leeway")
    if leeway > LEEWAY_MAX:
        raise _bad("leeway", value, "more than 5 minutes", "set the clocks by NTP, and give less")
    return leeway


def _file(value: object, key: str) -> Path:
    path = Path(str(value))
    try:
        path.read_bytes()
    except OSError as error:
        raise _bad(key, str(value), f"no readable file ({error.strerror})", "name a file in PEM format") from error
    return path.absolute()


def _truth(value: object, key: str) -> bool:
    text = str(value).lower()
    if text not in (*_YES, *_NO):
        raise _bad(key, value, "no yes or no", "write true or false")
    return text in _YES


def _certificate_name(value: object, _key: str) -> str:
    text = str(value)
    if text not in CERTIFICATE_NAMES:
        near = did_you_mean(text, CERTIFICATE_NAMES)
        raise _bad("certificate_name", value, "not known", f"{near}use one of {listed(CERTIFICATE_NAMES)}")
    return text


READERS: Mapping[str, Callable[[object, str], object]] = {
    "issuer": _text,
    "audience": _text,
    "user_claim": _claim,
    "groups_claim": _claim,
    "roles_claim": _claim,
    "roles": _roles,
    "leeway": _leeway,
    "admins": _names,
    "operators": _names,
    "viewers": _names,
    "agents": _names,
    "client_ca": _file,
    "tls_certificate": _file,
    "tls_key": _file,
    "tls_ca": _file,
    "certificate_name": _certificate_name,
    "os_users": _truth,
    "insecure_plaintext": _truth,
}
"""What is made of each key, from its value as people write it and its name."""
_FIELDS = {"leeway": "leeway_ms"}
