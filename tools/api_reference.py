"""The page docs/reference/api.md: signatures and docstrings of the public names."""

import html
import inspect
import re
from typing import Any

import manyhands
from manyhands.catalog import LEARNERS, load
from manyhands.estimator.classifier import MODEL_SETTINGS, TRAINING_SETTINGS, TextClassifier
from manyhands.settings import Settings, TextSettings, TrainingSettings

HEAD = """# The Python package

This page is made from docstrings by `make reference`. All names can be imported from `manyhands`; a user's
mistake raises a `ManyhandsError` (`manyhands.errors`) with one sentence. [The command line](cli.md) calls the
same functions.
"""
OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
ADDRESS = re.compile(r"<function .*>")  # a default that is a function shows where it lies in memory
EXAMPLE = re.compile(r"((?:^>>> .*\n?(?:^(?!>>>|$).*\n?)*)+)", re.MULTILINE)


def api_page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_entry(name, getattr(manyhands, name)) for name in manyhands.__all__)])


def _entry(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"## {name}\n\n{_signature(name, thing)}\n{_text(thing)}\n"
    parts = [f"## {name}\n\n{_text(thing)}\n"]
    if thing is TextClassifier:
        parts.append(_parameters())
    for member, value in vars(thing).items():
        function = getattr(value, "fn", None) or getattr(value, "__func__", value)
        if member.startswith("_") or not inspect.getdoc(function):
            continue
        if inspect.isfunction(function):
            parts.append(f"{_signature(f'{name}.{member}', function)}\n{_text(function)}\n")
        elif isinstance(value, property):
            parts.append(f"```\n{name}.{member}\n```\n{_text(value)}\n")
    return "\n".join(parts)


def _signature(name: str, function: Any) -> str:
    """The names and defaults alone: types would take more room than all the rest."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in ("self", "cls"):
            plain = parameter.replace(annotation=inspect.Parameter.empty)
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in "".join(shown):
                shown.append("*")
            shown.append(ADDRESS.sub("…", str(plain).replace(" = ", "=")))
    line = f"{name}({', '.join(shown)})"
    return f"```\n{line}\n```"


def _text(thing: Any) -> str:
    """A docstring in Markdown."""
    text = (inspect.getdoc(thing) or "").replace("``", "`")
    return EXAMPLE.sub(lambda example: f"```python\n{example[1].rstrip()}\n```\n", text).rstrip()


def _parameters() -> str:
    """What ``TextClassifier`` can be made with, of the settings that have an owner elsewhere."""
    models = {name: load(LEARNERS, "model", name) for name in LEARNERS}
    classifiers = {name: one.Settings for name, one in models.items() if one.learns == "labels"}
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for name in MODEL_SETTINGS:
        owners = {model: kind for model, kind in classifiers.items() if name in kind.model_fields}
        defaults: dict[str, list[str]] = {}
        for model, kind in owners.items():
            defaults.setdefault(_default(kind, name), []).append(f"`{model}`")
        shown = [f"{default} ({', '.join(which)})" for default, which in defaults.items()]
        lines.append(_row(name, ", ".join(shown), next(iter(owners.values()))))
    for kind, names in (
        (TrainingSettings, TRAINING_SETTINGS),
        (TextSettings, tuple(TextSettings.model_fields)),
    ):
        lines += [_row(name, _default(kind, name), kind) for name in names]
    return "\n".join(lines) + "\n"


def _default(kind: type[Settings], name: str) -> str:
    return f"`{kind.model_fields[name].default!r}`"


def _row(name: str, default: str, kind: type[Settings]) -> str:
    words = html.escape(str(kind.model_fields[name].description), quote=False)
    meaning = OPTION.sub(lambda option: f"`{option[1].replace('-', '_')}`", words)
    return f"| `{name}` | {default} | {meaning} |"
