"""Certificates of clients: the TLS handshake has verified them against the CA, here they become users."""

from collections.abc import Callable
from dataclasses import replace

from cryptography import x509
from cryptography.x509.oid import NameOID

from services.gateway.identity.source import Credentials, Known, checked_user
from services.gateway.refusals import Unauthenticated
from tenure.domain.rights import Caller, Role

_ALTERNATIVE: dict[str, type[x509.RFC822Name | x509.UniformResourceIdentifier | x509.DNSName]] = {
    "email": x509.RFC822Name,
    "uri": x509.UniformResourceIdentifier,
    "dns": x509.DNSName,
}


class Certificates:
    """The user in a client's certificate. `name`: common-name, email, uri or dns."""

    def __init__(self, name: str, *, clock: Callable[[], float], roles_of: Callable[[Caller], frozenset[Role]]) -> None:
        """`clock` gives epoch seconds: a connection may outlive its certificate."""
        self._name, self._clock, self._roles_of = name, clock, roles_of

    async def identify(self, credentials: Credentials) -> Known | None:
        """The user; None without a certificate, or where a token says who it is."""
        if not credentials.certificate or credentials.token:
            return None
        certificate = x509.load_pem_x509_certificate(credentials.certificate)
        until = certificate.not_valid_after_utc.timestamp()
        if self._clock() > until:
            raise Unauthenticated(
                field="certificate", problem="has expired since the connection was made", fix="connect with a new one"
            )
        names = self._names(certificate)
        if len(names) != 1:
            raise Unauthenticated(
                field="certificate",
                problem=f"has {len(names)} names of the kind {self._name}",
                fix="use one that names one user",
            )
        caller = Caller(user=checked_user(names[0], field="certificate"))
        how = f"certificate of {certificate.issuer.rfc4514_string()[:200]}"
        return Known(caller=replace(caller, roles=self._roles_of(caller)), how=how, until=until)

    def _names(self, certificate: x509.Certificate) -> list[str]:
        if self._name == "common-name":
            return [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        try:
            alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return [str(one) for one in alternative.get_values_for_type(_ALTERNATIVE[self._name])]
