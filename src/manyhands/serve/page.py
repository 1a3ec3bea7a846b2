"""The page to try the model with: three files of the package, which fetch nothing but from this service."""

from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec

from manyhands.errors import ManyhandsError
from manyhands.report.records import read_runs
from manyhands.serve.answers import Answer, Refusal
from manyhands.serve.api import CANNOT
from manyhands.serve.model import ServedModel
from manyhands.serve.requests import Request, Route

HTML, STYLE, SCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
)
REPORT_GAP, REPORT_LINK = b"<!-- report -->", b' \xc2\xb7 <a href="report">report of the run</a>'
# The map and the report bring policies of their own; they may stand in our page only.
MAP_HEADERS = ((b"content-security-policy", b"frame-ancestors 'self'"), (b"referrer-policy", b"no-referrer"))


def _part(name: str) -> bytes:
    return files("manyhands.serve").joinpath(name).read_bytes()


async def page(request: Request) -> Answer:
    """Show a page to try the model with."""
    shown = _part("page.html")
    if _has_report(request.model):
        shown = shown.replace(REPORT_GAP, REPORT_LINK)
    return Answer(shown, HTML, headers=HEADERS)


async def style(request: Request) -> Answer:
    """Give the style of the page."""
    return Answer(_part("page.css"), STYLE)


async def script(request: Request) -> Answer:
    """Give the script of the page."""
    return Answer(_part("page.js"), SCRIPT)


async def word_map(request: Request) -> Answer:
    """Show the words on a plane."""
    return Answer(await request.service.word_map(request.model), HTML, headers=MAP_HEADERS)


async def report(request: Request) -> Answer:
    """Show how the model was trained, as ``manyhands report`` does."""
    folder, version = request.model.bundle.folder, request.model.version
    try:
        text = await request.aside(lambda: _report(str(folder), version))
    except ManyhandsError as error:
        raise Refusal(409, str(error)) from None
    return Answer(text, HTML, headers=MAP_HEADERS)


@lru_cache(1)
def _report(folder: str, version: str) -> bytes:
    """The page, made when it is first asked for; another ``version`` has another."""
    from manyhands.report.run_page import page_about  # noqa: PLC0415 - few ask for it

    return page_about(folder).encode()


def _has_report(model: ServedModel) -> bool:
    """The bundle has the record of its run, and there is a library to draw with."""
    try:
        return bool(read_runs([str(model.bundle.folder)], lambda said: None) and find_spec("vl_convert"))
    except ManyhandsError:
        return False


_TEXT = {"type": "string"}

ROUTES = (
    Route("GET", "/", page, {"text/html": _TEXT}),
    Route("GET", "/page.css", style, {"text/css": _TEXT}),
    Route("GET", "/page.js", script, {"text/javascript": _TEXT}),
    Route("GET", "/report", report, {"text/html": _TEXT}, refuses=CANNOT),
    Route("GET", "/map", word_map, {"text/html": _TEXT}, refuses=CANNOT),
)
