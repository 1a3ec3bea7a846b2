"""URLs of streams: what stands in them, and what of that may be shown."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from manyhands.errors import UsageError
from manyhands.settings import nearest

SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
CREDENTIALS = re.compile(r"(?<=://).*@", re.DOTALL)  # up to the last @: a password may hold one, and a slash
USER, PASSWORD = "MANYHANDS_STREAM_USER", "MANYHANDS_STREAM_PASSWORD"
ALLOWED = {"from": ("earliest", "latest"), "tls": ("false", "true")}  # the first is the default


def scheme_of(url: str) -> str:
    found = SCHEME.match(url)
    return found[1].lower() if found else ""


def describe(url: str) -> str:
    """The URL without any credential, for records and messages.

    >>> describe("redis://me:secret@localhost:6379/reviews")
    'redis://localhost:6379/reviews'
    >>> describe("live.jsonl"), describe("-")
    ('live.jsonl', 'standard input')
    """
    return "standard input" if url == "-" else CREDENTIALS.sub("", url)


@dataclass(frozen=True)
class Address:
    """The parts of a URL. ``shown`` is the URL as errors and records may have it."""

    shown: str
    hosts: tuple[tuple[str, int], ...]  # an IPv6 address is in brackets
    name: str
    options: dict[str, str]
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def latest(self) -> bool:
        """Whether reading begins with what comes from now on."""
        return self.choice("from", ALLOWED["from"]) == "latest"

    @property
    def tls(self) -> bool:
        return self.choice("tls", ALLOWED["tls"]) == "true"

    def choice(self, option: str, allowed: tuple[str, ...]) -> str:
        """One of the values allowed; the first is the default."""
        value = self.options.get(option, allowed[0])
        if value not in allowed:
            raise self.wrong(f"{option}={value} should be one of {', '.join(allowed)}")
        return value

    def wrong(self, what: str) -> UsageError:
        return UsageError(f"{self.shown}: {what}")


def parse(url: str, port: int, named: str, options: tuple[str, ...]) -> Address:
    """The address of a server and of what it is to give, ``named`` so; credentials may be in the environment.

    >>> address = parse("redis://me:p%40ss@localhost/reviews?from=latest", 6379, "stream", ("from",))
    >>> address.hosts, address.name, address.password, address.latest
    ((('localhost', 6379),), 'reviews', 'p@ss', True)
    >>> parse("redis://localhost", 6379, "stream", ())
    Traceback (most recent call last):
    manyhands.errors.UsageError: redis://localhost: the name of the stream is missing; write redis://host:6379/stream
    """
    shown, scheme = describe(url), scheme_of(url)
    pattern = f"write {scheme}://host:{port}/{named}"
    try:
        address = urlsplit(url)
    except ValueError:  # brackets that do not match
        raise UsageError(f"{shown}: {pattern}") from None
    credentials, _, servers = address.netloc.rpartition("@")
    if address.fragment or "@" in address.path + address.query:
        raise UsageError(f"{shown}: in passwords and names write @ / ? # as %40 %2F %3F %23")
    name = unquote(address.path.removeprefix("/"))
    if not name:
        raise UsageError(f"{shown}: the name of the {named} is missing; {pattern}")
    given = dict(parse_qsl(address.query, keep_blank_values=True))
    for option in given:
        if option not in options:
            raise UsageError(f"{shown}: there is no option '{option}'; {nearest(option, list(options))}")
    hosts = tuple(_host(server, port, f"{shown}: {pattern}") for server in servers.split(","))
    user, _, password = map(unquote, credentials.partition(":"))
    user, password = user or os.environ.get(USER, ""), password or os.environ.get(PASSWORD, "")
    found = Address(shown, hosts, name, given, user, password)
    for option in ("from", "tls"):  # a mistake in them is told before anything is connected
        found.choice(option, ALLOWED[option])
    return found


def _host(server: str, port: int, otherwise: str) -> tuple[str, int]:
    """
    >>> _host("[::1]:7", 1, ""), _host("localhost", 1, "")
    (('[::1]', 7), ('localhost', 1))
    """
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?", server)
    if not found or not 0 < int(found[2] or port) < 1 << 16:
        raise UsageError(otherwise)
    return found[1], int(found[2] or port)
