"""The console as an application: which address is which page, who may see it, and what is said when it goes wrong."""

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from services.console import render
from services.console.asked import Asked, Console, Page
from services.console.callers import COOKIE, SESSION_S, SignInNeeded, usable
from services.console.gateway import NoAnswer
from services.console.pages import budgets, cluster, hosts, incentives, job, queue, shares
from tenure.domain.refusal import Refusal

logger = logging.getLogger(__name__)

Show = Callable[[Asked], Awaitable[Page]]
Act = Callable[[Asked, dict[str, str]], Awaitable[str | Page]]
"""Does what a form asks for; returns the address to look at afterwards, or a page."""

PAGES: tuple[tuple[str, str, Show], ...] = (
    ("/", "queue", queue.show),
    ("/jobs/{job}", "job", job.show),
    ("/budgets", "budgets", budgets.show_tree),
    ("/budgets/{path:path}", "budget", budgets.show),
    ("/cluster", "cluster", cluster.show),
    ("/hosts", "hosts", hosts.show_all),
    ("/hosts/{host}", "host", hosts.show),
    ("/incentives", "incentives", incentives.show),
)
FORMS: tuple[tuple[str, str, Act], ...] = (
    ("/jobs/{job}/cancel", "cancel", job.cancel),
    ("/shares", "shares", shares.edit),
    ("/hosts/{host}/drain", "drain", hosts.drain),
    ("/hosts/{host}/resume", "resume", hosts.resume),
    ("/hosts/{host}/repaired", "repaired", hosts.repaired),
)
TEXTS: tuple[tuple[str, str, Callable[[Asked], Awaitable[Response]]], ...] = (
    ("/jobs/{job}/output", "output", job.output),
)


class _Kept(StaticFiles):
    """Static files, whose addresses change with them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """See `StaticFiles`."""
        found = await super().get_response(path, scope)
        found.headers["cache-control"] = "public, max-age=31536000, immutable"
        return found


class Application:
    """The pages over one `Console`. `https`: cookies are for encrypted connections alone."""

    def __init__(self, console: Console, *, https: bool) -> None:
        self._console, self._https = console, https

    def routes(self) -> Starlette:
        """The application that a server runs."""
        routes = [
            *(Route(path, self._page(show), name=name) for path, name, show in PAGES),
            *(Route(path, self._form(act), name=name, methods=["POST"]) for path, name, act in FORMS),
            *(Route(path, self._text(send), name=name) for path, name, send in TEXTS),
            Route("/sign-in", self._sign_in_page, name="sign-in"),
            Route("/sign-in", self._sign_in, name="sign-in", methods=["POST"]),
            Route("/sign-out", self._sign_out, name="sign-out", methods=["POST"]),
            Route("/health", self._health, name="health"),
            Mount(render.STATIC, _Kept(directory=render.HERE / "static"), name="static"),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._not_found})

    def _page(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._answered(request, lambda asked: self._shown(asked, show))

        return endpoint

    def _text(self, send: Callable[[Asked], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._answered(request, send)

        return endpoint

    async def _shown(self, asked: Asked, show: Show) -> Response:
        return render.answer(asked, await show(asked))

    def _form(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            fields = await _fields(request)

            async def acted(asked: Asked) -> Response:
                if not self._console.callers.is_form_token(fields.get("form_token", ""), asked.who):
                    problem = "was made before the console was started anew, or for somebody else"
                    raise Refusal(field="form", problem=problem, fix="load the page again")
                done = await act(asked, fields)
                if isinstance(done, Page):
                    return Response(render.html(done, asked), done.status, media_type="text/html")
                return RedirectResponse(done, 303)

            return await self._answered(request, acted)

        return endpoint

    async def _answered(self, request: Request, answer: Callable[[Asked], Awaitable[Response]]) -> Response:
        """The answer to somebody who is known; what is wrong as a page, or as JSON for who asked for that."""
        asked = None
        try:
            who = await self._console.callers.who(request)
            asked = Asked(console=self._console, request=request, who=who)
            return await answer(asked)
        except SignInNeeded:
            if request.query_params.get("format", "html") == "html" and request.method == "GET":
                return RedirectResponse(f"/sign-in?next={quote(_address_of(request), safe='')}", 303)
            return JSONResponse({"error": "nobody is signed in; send a token: Authorization: Bearer ..."}, 401)
        except Refusal as refusal:
            return self._trouble(request, asked, 400, str(refusal))
        except NoAnswer as no_answer:
            return self._trouble(request, asked, no_answer.status, no_answer.said)

    def _trouble(self, request: Request, asked: Asked | None, status: int, said: str) -> Response:
        if request.query_params.get("format", "html") != "html":
            return JSONResponse({"error": said}, status)
        passes = request.method == "GET" and status in _PASSING
        page = Page(
            section="",
            title=_TITLES.get(status, "Not possible"),
            template="trouble.html",
            context={"said": said, "live": passes, "passes": passes},
        )
        return Response(render.html(page, asked), status, media_type="text/html")

    async def _not_found(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return self._trouble(request, None, 404, "There is no such page.")
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers=error.headers)

    async def _sign_in_page(self, request: Request) -> Response:
        return self._sign_in_form(request.query_params.get("next", "/"), said="", status=200)

    def _sign_in_form(self, after: str, *, said: str, status: int) -> Response:
        page = Page(
            section="", title="Sign in", template="sign_in.html", context={"said": said, "next": local_address(after)}
        )
        return Response(render.html(page, None), status, media_type="text/html")

    async def _sign_in(self, request: Request) -> Response:
        fields = await _fields(request)
        token, after = fields.get("token", "").strip(), local_address(fields.get("next", "/"))
        if not usable(token):
            said = "That is no token. Paste the token alone, on one line."
            return self._sign_in_form(after, said=said, status=400)
        try:
            who = await self._console.callers.known(token)
        except NoAnswer as refused:
            return self._sign_in_form(after, said=refused.said, status=refused.status)
        response = RedirectResponse(after, 303)
        callers = self._console.callers
        name = callers.sessions.begin(token, user=who.user, uid=callers.uid_of(request))
        response.set_cookie(
            COOKIE, name, max_age=int(SESSION_S), httponly=True, samesite="lax", secure=self._https, path="/"
        )
        return response

    async def _sign_out(self, request: Request) -> Response:
        self._console.callers.sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(COOKIE, path="/")
        return response

    async def _health(self, _: Request) -> Response:
        """Whether pages can be answered: the gateway is there. Nobody has to be known for this."""
        there = await self._console.gateway.is_there()
        return JSONResponse({"gateway": "serving" if there else "away"}, 200 if there else 503)


_PASSING = (429, 502, 503, 504)
"""Trouble that ends by itself: the page is asked for again, and loaded when it is there."""
_TITLES = {400: "Not understood", 403: "Not allowed", 404: "Not found", 503: "Away for a moment", 504: "No answer"}


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form; of one that is given twice the last. The guard has limited its size."""
    body = await request.body()
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=500))


def _address_of(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def local_address(text: str) -> str:
    """An address of the console itself; anything else is the first page."""
    try:
        elsewhere = bool(urlsplit(text).netloc)
    except ValueError:
        elsewhere = True
    good = text.startswith("/") and not text.startswith("//") and "\\" not in text and not elsewhere
    return text if good and text.isprintable() else "/"
