"""The console in this process, over a gateway in this process: pages are asked for without a server between."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from services.console.application import Application
from services.console.asked import Console
from services.console.callers import Callers
from services.console.gateway import Gateway
from services.console.guard import Guard
from services.console.history import History
from services.console.options import parse_options
from services.console.sharing import Shared
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import LogHistory, Rig, play
from tests.contract.own_clickhouse import Server
from tests.contract.test_gateway_identity import NO_OS_USERS, People

HOST = "127.0.0.1:7734"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(kw_only=True)
class Browser:
    """Asks the application as a server would hand it over. `token`: who asks; `client`, `server`: the connection."""

    app: Any
    token: str = ""
    host: str = HOST
    cookies: dict[str, str] = field(default_factory=dict)
    client: tuple[str, int] = ("127.0.0.1", 41234)
    server: tuple[str, int] = ("127.0.0.1", 7734)

    def as_(self, token: str) -> "Browser":
        """Somebody else."""
        return Browser(app=self.app, token=token)

    async def get(self, address: str, **headers: str) -> Answer:
        return await self.ask("GET", address, b"", headers)

    async def post(self, address: str, fields: Mapping[str, str], **headers: str) -> Answer:
        body = urlencode(fields).encode()
        usual = {"origin": f"http://{self.host}", "content-length": str(len(body))}
        return await self.ask("POST", address, body, {**usual, **headers})

    async def ask(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, query = address.partition("?")
        sent = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": self.client,
            "server": self.server,
        }
        got: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            got.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in got[0]["headers"]}
        for name, value in found.items():
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        content = b"".join(message.get("body", b"") for message in got[1:])
        return Answer(status=got[0]["status"], headers=found, body=content)


def play_console(
    people: People,
    scenario: Callable[[Rig, Browser], Awaitable[None]],
    *,
    clock: Callable[[], float] | None = None,
    database: Server | None = None,
    **options: Any,
) -> None:
    """Play a scenario with a gateway, and the console before it. Callers are known by their tokens alone.

    Answers are not kept for a moment, so that a test sees what it has just written.
    """
    seconds = iter(range(10**9))

    async def on(rig: Rig) -> None:
        data = people.key.parent.parent
        flags = ["--data", str(data), "--console-gateway", rig.address, "--set", "identity.os_users=false"]
        made = parse_options(flags)
        gateway, shared = Gateway(made), Shared(clock or (lambda: 100.0 * next(seconds)))
        console = Console(
            gateway=gateway,
            history=History(database.url, database.token_file, shared) if database else History("", None, shared),
            callers=Callers(gateway, shared, local_key=None, everybody=True),
            shared=shared,
        )
        app = Guard(Application(console, https=False).routes(), loopback_only=True, https=False)
        try:
            await scenario(rig, Browser(app=app, token=people.token("ana")))
        finally:
            await gateway.close()

    usual = {"identity": NO_OS_USERS, "local_key": people.key, "history_of": LogHistory}
    play(MemoryUnderTest(), on, **{**usual, **options})


def field_of(page: str, name: str) -> str:
    """The value of a hidden field in a page."""
    return page.split(f'name="{name}" value="')[1].partition('"')[0]
