"""A page as HTML, CSV or JSON, with an ETag of what it is made from: an open page asks again and is told "the same"."""

import hashlib
import time
from pathlib import Path

import jinja2
import msgspec
from starlette.responses import JSONResponse, Response

from services.console import words
from services.console.asked import Asked, Page
from services.console.tables import Kind, Table, as_csv
from tenure.domain.nearest import listed
from tenure.domain.refusal import Refusal

HERE = Path(__file__).parent
SECTIONS = (
    ("queue", "/", "Queue"),
    ("budgets", "/budgets", "Budgets"),
    ("cluster", "/cluster", "Cluster"),
    ("hosts", "/hosts", "Hosts"),
    ("incentives", "/incentives", "Incentives"),
)
FORMATS = ("html", "csv", "json")

_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.globals.update(Kind=Kind, SECTIONS=SECTIONS)
_templates.filters.update(
    iso=words.iso,
    instant=words.instant,
    age=words.age,
    gpu_hours=words.gpu_hours,
    ahead=words.ahead,
)


def _static_path() -> str:
    """Changes when a static file does: their addresses carry it, so that they may be kept for good."""
    files = sorted((HERE / "static").iterdir())
    return f"/static/{hashlib.blake2b(b''.join(file.read_bytes() for file in files), digest_size=8).hexdigest()}"


STATIC = _static_path()
_templates.globals["static"] = STATIC


def answer(asked: Asked, page: Page) -> Response:
    """The page in the format that is asked for. Raises `Refusal` for another."""
    chosen = asked.choice("format", "html", FORMATS)
    if chosen != "html":
        return _export(asked, page, chosen)
    tag = _tag(asked, page)
    headers = {"etag": tag, "vary": "cookie, authorization", "x-tenure-now": str(_now_ms())}
    if page.status == 200 and asked.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(html(page, asked), page.status, headers, "text/html")


def html(page: Page, asked: Asked | None) -> str:
    """The page for a browser. `asked` None: nobody is known yet."""
    who = None if asked is None else asked.who
    form_token = "" if asked is None else asked.console.callers.form_token(asked.who)
    address = None if asked is None else asked.request.url
    return _templates.get_template(page.template).render(
        page=page,
        tables={table.name: table for table in page.tables},
        who=who,
        form_token=form_token,
        now=_now_ms(),
        export=None if address is None else _export_address(asked),
        **page.context,
    )


def _export(asked: Asked, page: Page, chosen: str) -> Response:
    """One table, or as JSON all of them."""
    name = asked.text("table")
    by_name = {table.name: table for table in page.tables}
    if name and name not in by_name:
        fix = f"use one of {listed(list(by_name))}" if by_name else "this page has none"
        raise Refusal(field="table", problem=f"{name[:40]!r} is no table of this page", fix=fix)
    if chosen == "json" and not name:
        return JSONResponse({table.name: table.document() for table in page.tables}, page.status)
    if not by_name:
        raise Refusal(field="format", problem="this page has no table", fix="leave it out")
    table: Table = by_name[name] if name else page.tables[0]
    if chosen == "json":
        return JSONResponse(table.document(), page.status)
    disposition = {"content-disposition": f'attachment; filename="{table.name}.csv"'}
    return Response(as_csv(table), page.status, disposition, "text/csv")


def _export_address(asked: Asked | None) -> str:
    """The address of this page without a format, to which one is added."""
    assert asked is not None, "somebody asked"
    url = asked.request.url.remove_query_params(["format", "table"])
    return f"{url.path}?{url.query}&" if url.query else f"{url.path}?"


def _tag(asked: Asked, page: Page) -> str:
    """The same while the page would be the same. What only the clock changes, the browser counts by itself."""
    made_of = [asked.who.user, asked.console.callers.form_token(asked.who), page.title, page.seen]
    made_of += [table.rows for table in page.tables]
    return f'"{hashlib.blake2b(msgspec.json.encode(made_of), digest_size=12).hexdigest()}"'


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
