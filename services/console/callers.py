"""Who looks at a page, as the gateway says: by a bearer token, by a session that began with one, or by the kernel.

The token goes with every call to the gateway. Where callers are known by the operating system (`tenure up`), the kernel
says whose connection it is, as for the gateway itself, and a token of the data directory is made for that user, an
admin's for root and for whoever runs the console.
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.requests import Request

from services.console.gateway import Gateway, NoAnswer
from services.console.sharing import Shared
from tenure.domain.ids import UserName
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right, Role
from tenure.domain.units import HOUR, MINUTE
from tenure.runtime.local_tokens import load_key
from tenure.runtime.socket_owner import Endpoint, name_of, owner_of_sockets
from tenure.v1 import identity_pb2

COOKIE = "tenure_session"
SESSIONS_MAX, SESSIONS_OF_USER_MAX = 10_000, 50
SESSION_S = 8 * 3600.0
TOKEN_BYTES_MAX = 16_384
ROOT_UID = 0
_KNOWN_S = 5.0
"""So long the gateway's word on a token counts; a withdrawn one is noticed then."""
_OWN_TOKEN_MS, _RENEW_MS = HOUR, 10 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Somebody whom the gateway knows. `budgets`: rights in a budget beyond those everywhere.

    `session`: they signed in here, and may sign out.
    """

    user: str
    how: str
    token: str = field(repr=False)
    rights: frozenset[str] = frozenset()
    budgets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    session: bool = False

    def may(self, right: Right, *, budget: str = "", owner: str = "") -> bool:
        """Whether a button is worth showing. The gateway decides when it is pressed."""
        own = owner == self.user and right in (Right.CANCEL, Right.READ_OUTPUT)
        return right in self.rights or right in self.budgets.get(budget, ()) or own


class SignInNeeded(Exception):
    """Nobody is known by this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Somebody who signed in: until when (monotonic seconds), from which user of this machine, if that is known."""

    until: float
    user: str
    uid: int | None
    token: str = field(repr=False)


class Sessions:
    """People who signed in, by the digest of what their cookie holds. In memory: a restart ends them.

    Browsers send a cookie to every port of a host: on loopback other users of the machine can come by one. So a session
    counts only for the user of this machine who began it, where the kernel says who that is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def begin(self, token: str, *, user: str, uid: int | None) -> str:
        """Keep the token; returns what the cookie is to hold. The oldest give way: of the user, then of all."""
        self._forget_old()
        name = secrets.token_urlsafe(32)
        self._kept[_digest(name)] = Session(until=self._clock() + SESSION_S, user=user, uid=uid, token=token)
        own = [key for key, session in self._kept.items() if session.user == user]
        for key in own[:-SESSIONS_OF_USER_MAX]:
            del self._kept[key]
        while len(self._kept) > SESSIONS_MAX:
            self._kept.popitem(last=False)
        return name

    def token_of(self, name: str, *, uid: int | None) -> str:
        """The token behind a cookie that this user of the machine shows; empty when there is none any more."""
        self._forget_old()
        found = self._kept.get(_digest(name))
        return found.token if found is not None and found.uid == uid else ""

    def end(self, name: str) -> None:
        """Forget it."""
        self._kept.pop(_digest(name), None)

    def _forget_old(self) -> None:
        """All last equally long: the oldest come first."""
        now = self._clock()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._kept.popitem(last=False)


class Callers:
    """Finds out who calls. `local_key`: signs for users of this machine; None where only tokens count.

    `everybody`: for all of them; else for root and for whoever runs the console, who could read the key themselves.
    """

    def __init__(self, gateway: Gateway, shared: Shared, *, local_key: Path | None, everybody: bool) -> None:
        self._gateway, self._shared, self._local_key, self._everybody = gateway, shared, local_key, everybody
        self._uid_of = owner_of_sockets()
        self._own: dict[int, tuple[float, str]] = {}
        self._admins = frozenset({ROOT_UID, os.getuid()})
        self._secret = secrets.token_bytes(32)
        self.sessions = Sessions()

    async def who(self, request: Request) -> Who:
        """Who calls. Raises `SignInNeeded`, or `NoAnswer` while the gateway is away."""
        token, session = self._shown(request)
        if not token:
            raise SignInNeeded
        try:
            return replace(await self.known(token), session=session)
        except NoAnswer as refused:
            if refused.code == "UNAUTHENTICATED":
                raise SignInNeeded from refused
            raise

    async def known(self, token: str) -> Who:
        """Whose token it is, by the gateway. Raises `NoAnswer`."""

        async def ask() -> identity_pb2.WhoAmIResponse:
            return await self._gateway.call(self._gateway.identity.WhoAmI, identity_pb2.WhoAmIRequest(), token=token)

        answer = await self._shared.get(("who", _digest(token)), ask, keep_s=_KNOWN_S)
        return Who(
            user=answer.user,
            how=answer.how,
            token=token,
            rights=frozenset(answer.rights),
            budgets={each.path: frozenset(each.rights) for each in answer.budgets},
        )

    def _shown(self, request: Request) -> tuple[str, bool]:
        """The token that the request shows, or that the kernel's word stands for, and whether it is a session's.

        Empty: nothing. Who shows something unusable is nobody, not somebody else: raises `SignInNeeded`.
        """
        shown = request.headers.getlist("authorization")
        if shown:
            scheme, _, sent = shown[0].partition(" ")
            if len(shown) > 1 or scheme.lower() != "bearer" or not usable(sent.strip()):
                raise SignInNeeded
            return sent.strip(), False
        uid = self.uid_of(request)
        in_session = self.sessions.token_of(request.cookies.get(COOKIE, ""), uid=uid)
        return (in_session, True) if in_session else (self._of_this_machine(uid), False)

    def uid_of(self, request: Request) -> int | None:
        """The user of this machine whose connection it is, as the kernel says; None: of another, or it does not say."""
        client, server = request.scope.get("client"), request.scope.get("server")
        if not client or not server or server[1] is None or not ipaddress.ip_address(client[0]).is_loopback:
            return None
        return self._uid_of(Endpoint(client[0], client[1]), Endpoint(server[0], server[1]))

    def form_token(self, who: Who) -> str:
        """What forms of this caller carry, so that no other site can send one in their name."""
        shown = "" if self._is_own(who) else who.token
        return hmac.new(self._secret, f"{who.user}\n{shown}".encode(), "sha256").hexdigest()

    def is_form_token(self, sent: str, who: Who) -> bool:
        """Whether a form is one of ours, made for this caller."""
        return hmac.compare_digest(sent.encode(), self.form_token(who).encode())

    def _is_own(self, who: Who) -> bool:
        """Whether its token was made here: those are renewed while a page is open."""
        return any(who.token == token for _, token in self._own.values())

    def _of_this_machine(self, uid: int | None) -> str:
        if self._local_key is None or uid is None or not (self._everybody or uid in self._admins):
            return ""
        return self._token_for(uid, self._local_key)

    def _token_for(self, uid: int, path: Path) -> str:
        """A token of the data directory for this user, good for an hour and made anew before that is over."""
        now = time.time_ns() // 1_000_000
        until, token = self._own.get(uid, (0, ""))
        if now + _RENEW_MS < until:
            return token
        roles = [Role.ADMIN] if uid in self._admins else []
        try:
            key = load_key(path)
        except Refusal:
            return ""  # the gateway then knows nobody by it, either
        token = key.sign(user=UserName(name_of(uid)), roles=roles, now=now, lifetime_ms=_OWN_TOKEN_MS)
        self._own[uid] = (now + _OWN_TOKEN_MS, token)
        return token


def usable(token: str) -> bool:
    """Whether the text can be a token at all."""
    return 0 < len(token) <= TOKEN_BYTES_MAX and token.isascii() and token.isprintable() and " " not in token


def _digest(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), digest_size=32).digest()
