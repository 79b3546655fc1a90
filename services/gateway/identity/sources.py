"""From the configuration to the sources, in their order, and to a listening port with or without TLS."""

import os
import time
from pathlib import Path

import grpc

from services.gateway.identity.certificates import Certificates
from services.gateway.identity.local import LocalTokens
from services.gateway.identity.oidc import OidcTokens
from services.gateway.identity.os_users import OsUsers
from services.gateway.identity.source import Source
from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.identity_options import IdentityOptions

ROOT_UID = 0


def sources_of(options: IdentityOptions, *, listen: str, local_key: Path) -> list[Source]:
    """Tokens first, then certificates, then the operating system: what a caller sends counts before what they are."""
    sources: list[Source] = [LocalTokens(local_key, roles_of=options.roles_of)]
    if options.issuer:
        sources.append(OidcTokens(options, clock=time.time))
    if options.client_ca is not None:
        sources.append(Certificates(options.certificate_name, clock=time.time, roles_of=options.roles_of))
    if believes_os(options, listen.rpartition(":")[0]):
        admins = frozenset({ROOT_UID, os.getuid()})
        sources.append(OsUsers(listen, admins=admins, roles_of=options.roles_of))
    return sources


def believes_os(options: IdentityOptions, host: str) -> bool:
    """Whether callers without credentials are who the operating system says: on loopback, and not beside a proxy.

    With an issuer or a client CA a proxy may stand before the gateway on the same machine, and what comes through it
    would be taken for the proxy's user. So it must then be asked for.
    """
    wanted = options.os_users if options.os_users is not None else not options.knows_elsewhere
    return wanted and is_loopback(host)


def listen_on(server: grpc.aio.Server, listen: str, options: IdentityOptions) -> int:
    """Bind the port; 0 or RuntimeError where it cannot be had. Raises `Refusal` for files that are no certificates."""
    if options.tls_certificate is None or options.tls_key is None:
        return server.add_insecure_port(listen)
    pair = (options.tls_key.read_bytes(), options.tls_certificate.read_bytes())
    _check_pair(*pair)
    roots = None if options.client_ca is None else options.client_ca.read_bytes()
    credentials = grpc.ssl_server_credentials(
        [pair], root_certificates=roots, require_client_auth=options.client_ca is not None
    )
    return server.add_secure_port(listen, credentials)


def _check_pair(key_pem: bytes, certificate_pem: bytes) -> None:
    """Raise `Refusal` unless the key is the certificate's: gRPC itself would only say that the port cannot be had."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise Refusal(
            field="identity.tls_certificate", problem="not a certificate", fix="name a file in PEM format"
        ) from error
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError) as error:
        raise Refusal(
            field="identity.tls_key", problem="not a private key without a password", fix="name a file in PEM format"
        ) from error
    if key.public_key() != certificate.public_key():
        raise Refusal(field="identity.tls_key", problem="not the key of identity.tls_certificate", fix="name its key")
