"""The ``manyhands`` program: its commands, and how errors become exit codes."""

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, NamedTuple

import typer

from manyhands import __version__
from manyhands.cli import interrupt
from manyhands.errors import ManyhandsError, ResumableError

# In the order of ``--help``. Each is a file of this folder with a function of the same name, and only that of
# the command in use is imported.
VERBS = {
    "prepare": "Turn raw reviews into a dataset.",
    "train": "Train a classifier or word vectors.",
    "stream": "Learn from a stream of messages without end.",
    "evaluate": "Evaluate a classifier or word vectors.",
    "audit": "List the rows whose labels look wrong, and why.",
    "predict": "Predict the labels of texts.",
    "serve": "Serve a model over HTTP, with a page to try it.",
    "explain": "Show what each n-gram adds to a prediction.",
    "embed": "Make a vector of every text.",
    "nearest": "Find the words most similar to a word.",
    "analogy": "Find the word that completes an analogy.",
    "compare": "Compare runs: scores, seconds, speed-up, bytes, money.",
    "report": "Write a page about a run, or about several.",
    "profile": "Show where the time of a run went.",
    "scale": "Compare training with different numbers of workers.",
    "plan": "Predict the time and price of a training on rented machines.",
    "project": "Write a page that shows word vectors in two dimensions.",
    "quantize": "Quantise a bundle to a given size.",
    "tune": "Search for the settings with the best validation score.",
    "import": "Import a model that fastText trained.",
    "convert": "Convert a bundle to the formats of other tools.",
    "inspect": "Describe a dataset, or a model that learns from a stream.",
    "export": "Export a dataset as rows of fixed width.",
    "sample": "Write synthetic reviews.",
    "doctor": "Check this machine and what is installed.",
}


def build(arguments: list[str]) -> typer.Typer:
    """The command line for these arguments: with the command that they begin with, or the names of all."""
    app = typer.Typer(
        name="manyhands",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    verb = arguments[0] if arguments else ""
    if verb in VERBS:
        module = _module(verb)
        if hasattr(module, "add_to"):  # it has options that are made from settings
            module.add_to(app, arguments[1:])
        else:
            app.command(verb)(getattr(module, _name(verb)))
    else:
        for name, summary in VERBS.items():
            app.command(name, help=summary)(_main)
    return app


def _name(verb: str) -> str:
    """The command's file and function: what is a word of Python itself cannot be a name."""
    return f"{verb}_" if iskeyword(verb) else verb


def _module(verb: str) -> Any:
    return import_module(f"manyhands.cli.{_name(verb)}")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"manyhands {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Raw reviews in, trained text models out."""


class Ended(NamedTuple):
    """How a command ended, and the sentence for it if it did not end well."""

    code: int
    message: str = ""

    def tell(self) -> int:
        if self.message:
            print(f"manyhands: {self.message}", file=sys.stderr)
        return self.code


def run() -> None:
    """Run the command line and exit with the code that tells what happened."""
    run_program(lambda: _run(sys.argv[1:] or ["--help"]))


def run_program(command: Callable[[], int]) -> None:
    """Call what gives an exit code, with signals handled from its start to its end."""
    interrupt.install()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows only ASCII shows question marks
    code = command()
    interrupt.ignore()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    return attempt(lambda: int(build(arguments)(arguments, standalone_mode=False) or 0), arguments).tell()


def attempt(command: Callable[[], int], arguments: Sequence[str] = ()) -> Ended:
    """Call, with whatever is raised told in one sentence; ``arguments`` are those of the command line."""
    try:
        return Ended(command())
    except typer.Exit as leaving:
        return Ended(leaving.exit_code)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Ended(0)
    except (Exception, interrupt.Interrupt) as error:
        if isinstance(error, ResumableError):
            return Ended(error.exit_code, str(error))
        if interrupt.asked():
            return Ended(interrupt.EXIT_CODE, "interrupted; no partial output was left behind")
        if isinstance(error, ManyhandsError):
            return Ended(error.exit_code, str(error))
        if isinstance(error, OSError) and error.filename is None:  # standard output, in all likelihood
            return Ended(2, f"the output cannot be written: {error.strerror or error}")
        if hasattr(error, "format_message"):  # the command line itself was wrong
            return Ended(2, _explain(error, arguments))
        traceback.print_exc()
        return Ended(1, "this is a bug in manyhands; please report the lines above and `manyhands doctor`")


def _explain(error: Any, arguments: Sequence[str]) -> str:
    """What was wrong; of an option that only another model or spread has, whose it is."""
    verb = arguments[0] if arguments and arguments[0] in VERBS else ""
    unknown = getattr(error, "option_name", "")
    explain = getattr(_module(verb), "explain_option", None) if verb and unknown else None
    known = explain(unknown, arguments) if explain else ""
    return known or f"{error.format_message().rstrip('.')}; see manyhands {verb and verb + ' '}--help"
