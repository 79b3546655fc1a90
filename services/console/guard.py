"""What every request passes and every response carries: whose address it was called by, and the headers of security.

Pages load nothing from elsewhere, run no script but the console's own file, and are shown in no frame. A console on
loopback answers only to loopback's names, so that no other site's name can be bound to it.
"""

from time import perf_counter
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.domain.loopback import is_loopback
from tenure.runtime.metric import histogram
from tenure.runtime.telemetry import Counts

ANSWERS = histogram(
    "tenure.console.answer.duration",
    "s",
    "from a request of a page to the whole answer",
    "page",
    "status",
    bounds=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
METRICS = (ANSWERS,)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
BODY_BYTES_MAX = 65_536


class Guard:
    """Stands before the application. `loopback_only`: it listens on loopback."""

    def __init__(self, app: ASGIApp, *, loopback_only: bool, https: bool) -> None:
        self._app, self._loopback_only, self._https = app, loopback_only, https
        self._counts = Counts(METRICS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), "500"

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if self._https:
                    headers.setdefault("strict-transport-security", "max-age=31536000")
            await send(message)

        refused = self._refusal(scope)
        await (self._app if refused is None else refused)(scope, receive, sending)
        route = scope.get("route")
        self._counts.record(ANSWERS, perf_counter() - began, page=getattr(route, "name", None) or "none", status=status)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to what is not even looked at."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._loopback_only and not is_loopback(_name_in(host)):
            return PlainTextResponse("This console answers on 127.0.0.1 and localhost only.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST.\n", 405, headers={"allow": "GET, HEAD, POST"})
        if scope["method"] == "POST":
            origin, site = headers.get("origin"), headers.get("sec-fetch-site")
            if (origin is not None and _place_of(origin) != host) or site not in (None, "same-origin", "none"):
                return PlainTextResponse("This form was sent by another site.\n", 403)
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                return PlainTextResponse(f"A form has at most {BODY_BYTES_MAX} bytes.\n", 413)
        return None


def _name_in(host: str) -> str:
    """The name or address in `localhost:7734`; empty where there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _place_of(origin: str) -> str | None:
    """Its host and port; None where it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
