"""Options of the command line: those that are made from settings, and those that several commands share."""

import inspect
from collections.abc import Callable, Container, Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from manyhands.settings import Common, Flag, OneOf, ReadingSettings, Settings, mark_of, option

BundleArgument = Annotated[
    str, typer.Argument(help="Folder or URL of a bundle that train wrote.", show_default=False)
]
VectorsArgument = Annotated[
    str,
    typer.Argument(
        help="Folder or URL of a bundle, or a vector file of word2vec or GloVe.",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory to use, like 4GB; by default half of the machine's.", rich_help_panel="Run"),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads to use; by default all cores.", rich_help_panel="Run")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel="Run")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Overwrite existing output.", rich_help_panel="Run")
]
BundleOut = Annotated[str, typer.Option(help="Folder or URL to write the bundle to.", show_default=False)]

KINDS: dict[type, str] = {int: "<int>", float: "<float>", str: "<str>", tuple: "<str>"}
MOST_CHOICES = 5
MOST_USED, RUN = "Most used", "Run"


class Panel:
    """Some options under a title, as ``--help`` shows them."""

    def __init__(self, title: str, kinds: Iterable[type[Settings]], leave_out: Container[str] = ()) -> None:
        self.title = title
        self.fields = {name: f for name, f in option_fields(*kinds).items() if name not in leave_out}

    def rows(self) -> list[tuple[str, str]]:
        return [(_shown(name, field), _help(name, field)) for name, field in self.fields.items()]


class CommonPanel(Panel):
    """The settings that most people look for first, of several models: each has its own default."""

    def __init__(self, kinds: list[type[Settings]], leave_out: Container[str] = ()) -> None:
        super().__init__(MOST_USED, kinds, leave_out)
        marked = {name for kind in kinds for name in kind.marked(Common)}
        self.fields = {name: field for name, field in self.fields.items() if name in marked}
        self._kinds = kinds

    def rows(self) -> list[tuple[str, str]]:
        return [self._row(name, field) for name, field in self.fields.items()]

    def _row(self, name: str, field: FieldInfo) -> tuple[str, str]:
        """What is right for all that have the setting."""
        all_shown = {
            _shown(name, kind.model_fields[name]) for kind in self._kinds if name in kind.model_fields
        }
        texts = [mark.text for kind in self._kinds if (mark := kind.marked(Common).get(name)) and mark.text]
        shown = all_shown.pop() if len(all_shown) == 1 else ", ".join(_flags(name, field))
        return shown, texts[0] if texts else str(field.description)


def option_fields(*kinds: type[Settings]) -> dict[str, FieldInfo]:
    """The settings that are options by themselves: not those that hold other settings."""
    fields = {name: field for kind in kinds for name, field in kind.model_fields.items()}
    return {name: field for name, field in fields.items() if not isinstance(field.default, Settings)}


Verb = Callable[..., None]
Panels = Callable[[], list[Panel]]
READING = Panel("Reading raw files", [ReadingSettings])


def add_verb(
    app: typer.Typer,
    verb: Verb,
    kinds: list[type[Settings]],
    panels: Panels,
    leave_out: Container[str] = (),
) -> None:
    """Add a command with an option for each setting of these kinds; those given reach it as ``settings``."""
    fields = {name: field for name, field in option_fields(*kinds).items() if name not in leave_out}

    def run(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in fields}
        verb(**values, settings={name: value for name, value in chosen.items() if value not in (None, [])})

    own = [p for p in inspect.signature(verb).parameters.values() if p.name != "settings"]
    made = [_parameter(name, field) for name, field in fields.items()]
    run.__signature__ = inspect.Signature([*own, *made])  # type: ignore[attr-defined]
    run.__doc__ = verb.__doc__
    app.command(verb.__name__, cls=_with_panels(panels))(run)


def _with_panels(panels: Panels) -> type[TyperCommand]:
    """A command whose help shows these panels after the options that its function names itself.

    An option may stand in several panels, in each with the default that it has there. The first panel
    continues the list of the function's own options, of which those of a panel "Run" come behind it.
    """

    class Command(TyperCommand):
        def format_options(self, ctx: Any, formatter: Any) -> None:
            shown = panels()
            made = {name for panel in shown for name in panel.fields}
            own: dict[str, list[tuple[str, str]]] = {MOST_USED: [], RUN: []}
            for param in self.get_params(ctx):
                if param.name not in made and (record := param.get_help_record(ctx)) is not None:
                    own[getattr(param, "rich_help_panel", None) or MOST_USED].append(record)
            sections = [(MOST_USED, own[MOST_USED]), *((panel.title, panel.rows()) for panel in shown)]
            if shown and shown[0].title == MOST_USED:
                sections[:2] = [(MOST_USED, own[MOST_USED] + shown[0].rows())]
            run = [(RUN, own[RUN])] if own[RUN] else []
            for title, rows in [*sections[:1], *run, *sections[1:]]:
                with formatter.section(title):
                    formatter.write_dl(rows) if rows else formatter.write_text("No options of its own.")

    return Command


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """The option of a setting. Its text is checked by the setting itself, so that errors are the same."""
    kind: Any = _kind(field)
    annotation = bool | None if kind is bool else list[str] | None if kind is tuple else str | None
    info = typer.Option(
        *_flags(name, field), help=_help(name, field), show_default=False, metavar=_metavar(field)
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, info]
    )


def _flags(name: str, field: FieldInfo) -> list[str]:
    flag = mark_of(field, Flag) or Flag()
    main = flag.name or option(name)
    if _kind(field) is bool and field.default is True and "/" not in main:
        main = f"{main}/--no-{main.removeprefix('--')}"
    return [main, flag.also] if flag.also else [main]


def _kind(field: FieldInfo) -> type:
    """The plain type of a setting: of one that may be None, of what else it may be."""
    kind: Any = field.annotation
    while get_origin(kind) in (Annotated, Union, type(int | None)):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return tuple if get_origin(kind) is tuple else str if get_origin(kind) is Literal else kind


def _metavar(field: FieldInfo) -> str | None:
    kind: Any = field.annotation
    catalog = mark_of(field, OneOf)
    if catalog is not None:
        return "|".join(catalog.names)
    if get_origin(kind) is Literal and len(get_args(kind)) <= MOST_CHOICES:
        return "|".join(get_args(kind))
    return KINDS.get(_kind(field))


def _shown(name: str, field: FieldInfo) -> str:
    metavar = "" if _kind(field) is bool else f" {_metavar(field)}"
    return ", ".join(_flags(name, field)).replace("/", " / ") + metavar


def _help(name: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, bool):  # of two flags, the one that need not be given; a single flag is off
        on, _, off = _flags(name, field)[0].partition("/")
        default = (on if default else off).removeprefix("--") if off else None
    said = "" if default in (None, ()) else f"  [default: {default}]"
    return f"{field.description}{said}"


def as_text(argument: str) -> str:
    """An argument whose bytes are no UTF-8, with question marks in their place."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def value_of(flag: str, arguments: list[str], default: str) -> str:
    """The value of an option before anything is parsed: it decides which other options there are.

    >>> value_of("--model", ["a.csv", "--model", "lstm"], "ngrams"), value_of("--model", ["--model=x"], "")
    ('lstm', 'x')
    """
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return default
