"""The ``manyhands`` command: its verbs, and how errors become exit codes."""

import io
import os
import sys
import traceback
from typing import Annotated

import typer

from manyhands import __version__
from manyhands.cli import (
    analogy,
    convert,
    doctor,
    evaluate,
    explain,
    export,
    import_,
    inspect,
    interrupt,
    nearest,
    predict,
    prepare,
    profile,
    project,
    quantize,
    sample,
    train,
    tune,
)
from manyhands.errors import ManyhandsError, ResumableError

app = typer.Typer(
    name="manyhands",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"manyhands {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Raw reviews in, trained text models out."""


VERBS = (
    prepare,
    train,
    evaluate,
    predict,
    explain,
    nearest,
    analogy,
    profile,
    project,
    quantize,
    tune,
    import_,
    convert,
    inspect,
    export,
    sample,
    doctor,
)
for verb in VERBS:
    verb.add_to(app)


def run() -> None:
    """Run the command line and exit with the code that tells what happened."""
    interrupt.install()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows only ASCII shows question marks
    code = _run()
    interrupt.ignore()
    sys.exit(code)


def _run() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except typer.Exit as leaving:
        return leaving.exit_code
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, interrupt.Interrupt) as error:
        if isinstance(error, ResumableError):
            return _say(str(error), error.exit_code)
        if interrupt.asked():
            return _say("interrupted; nothing was left half-made", interrupt.EXIT_CODE)
        if isinstance(error, ManyhandsError):
            return _say(str(error), error.exit_code)
        if isinstance(error, OSError) and error.filename is None:  # standard output, in all likelihood
            return _say(f"the output cannot be written: {error.strerror or error}", 2)
        if hasattr(error, "format_message"):  # the command line itself was wrong
            return _say(f"{error.format_message()}; see manyhands --help", 2)
        traceback.print_exc()
        return _say("this is a bug in manyhands; please report the lines above and `manyhands doctor`", 1)


def _say(message: str, code: int) -> int:
    print(f"manyhands: {message}", file=sys.stderr)
    return code
