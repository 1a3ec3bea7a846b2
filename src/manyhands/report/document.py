"""A page of sections, tables and pictures: one HTML file that works offline, on a phone, light and dark.

All text comes from data, so none of it is ever read as markup: a ``Block`` is HTML, and what makes one from
text escapes it. The browser is told to run nothing but what is named by its hash, and to fetch nothing.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files
from typing import NewType

Block = NewType("Block", str)

STYLE = "document.css"


def text(words: object) -> Block:
    return Block(html.escape(str(words)))


def paragraph(words: str, kind: str = "") -> Block:
    role = f' class="{kind}"' if kind else ""
    return Block(f"<p{role}>{text(words)}</p>")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> Block:
    """A table whose first column names its rows; the others are numbers. It scrolls where it is too wide."""
    top = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    # What scrolls must be reachable by keyboard, and have a name.
    return Block(
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">'
        f"<table><caption>{text(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Sequence[tuple[str, object]], kind: str = "facts") -> Block:
    """Names and their values."""
    shown = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return Block(f'<dl class="{kind}">{shown}</dl>')


def folded(title: str, blocks: Sequence[Block]) -> Block:
    """What is there for those who open it."""
    return Block(f"<details><summary>{text(title)}</summary>{''.join(blocks)}</details>")


def figure(picture: Block, caption: str, in_words: Block | None = None) -> Block:
    """A picture with its caption and the same as a table, for those who do not see it or want the numbers."""
    words = "" if in_words is None else folded("As a table", [in_words])
    return Block(f"<figure>{picture}<figcaption>{text(caption)}</figcaption>{words}</figure>")


def side_by_side(blocks: Sequence[Block]) -> Block:
    return Block(f'<div class="figures">{"".join(blocks)}</div>')


def section(title: str, blocks: Sequence[Block]) -> Block:
    return Block(f"<section><h2>{text(title)}</h2>{''.join(blocks)}</section>")


def frame(page: str, title: str) -> Block:
    """Another page inside this one, with its own script."""
    return Block(f'<iframe title="{text(title)}" srcdoc="{text(page)}"></iframe>')


def document(
    title: str, sections: Sequence[Block], *, subtitle: str = "", allowed: Sequence[str] = ()
) -> str:
    """The whole page. ``allowed`` are the scripts and styles that framed pages bring, by their hashes."""
    style = files("manyhands.report").joinpath(STYLE).read_text("utf-8")
    named = " ".join(f"'{name}'" for name in allowed)
    scripts = named or "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src '{hash_of(style)}' {named}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)} · manyhands</title>\n<style>{style}</style>\n</head>\n"
    )
    below = f'<p class="subtitle">{text(subtitle)}</p>' if subtitle else ""
    top = f"<header><h1>{text(title)}</h1>{below}</header>"
    body = "\n".join(sections)
    return f"{head}<body>\n{top}\n<main>\n{body}\n</main>\n</body>\n</html>\n"


def hash_of(content: str) -> str:
    """What a Content-Security-Policy calls a script or style that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
