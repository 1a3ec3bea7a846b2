"""The page to try the model with: three files of the package, which fetch nothing but from this service."""

from importlib.resources import files

from manyhands.serve.answers import Answer
from manyhands.serve.api import CANNOT
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
# The map brings a policy of its own, which allows its script by its hash; it may stand in our page only.
MAP_HEADERS = ((b"content-security-policy", b"frame-ancestors 'self'"), (b"referrer-policy", b"no-referrer"))


def _part(name: str) -> bytes:
    return files("manyhands.serve").joinpath(name).read_bytes()


async def page(request: Request) -> Answer:
    """Show a page to try the model with."""
    return Answer(_part("page.html"), HTML, headers=HEADERS)


async def style(request: Request) -> Answer:
    """Give the style of the page."""
    return Answer(_part("page.css"), STYLE)


async def script(request: Request) -> Answer:
    """Give the script of the page."""
    return Answer(_part("page.js"), SCRIPT)


async def word_map(request: Request) -> Answer:
    """Show the words on a plane."""
    return Answer(await request.service.word_map(request.model), HTML, headers=MAP_HEADERS)


_TEXT = {"type": "string"}

ROUTES = (
    Route("GET", "/", page, {"text/html": _TEXT}),
    Route("GET", "/page.css", style, {"text/css": _TEXT}),
    Route("GET", "/page.js", script, {"text/javascript": _TEXT}),
    Route("GET", "/map", word_map, {"text/html": _TEXT}, refuses=CANNOT),
)
