"""The ``manyhands`` command: its verbs, and how errors become exit codes."""

import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated

import typer

from manyhands import __version__
from manyhands.cli import doctor, export, inspect, prepare, sample
from manyhands.errors import ManyhandsError

INTERRUPTED = 130

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


for verb in (prepare, inspect, export, sample, doctor):
    verb.add_to(app)


class _Interrupt(BaseException):
    """Ctrl-C. Not Python's own KeyboardInterrupt: some libraries catch that one, or turn it into another."""

    happened = False


def run() -> None:
    """Run the command line and exit with the code that tells what happened."""
    signal.signal(signal.SIGINT, _interrupt)
    code = _run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: Ctrl-C must not change the code now
    sys.exit(code)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    _Interrupt.happened = True
    raise _Interrupt


def _run() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except typer.Exit as leaving:
        return leaving.exit_code
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, _Interrupt) as error:
        if _Interrupt.happened:
            return _say("interrupted; nothing was left half-made", INTERRUPTED)
        if isinstance(error, ManyhandsError):
            return _say(str(error), error.exit_code)
        if hasattr(error, "format_message"):  # the command line itself was wrong
            return _say(f"{error.format_message()}; see manyhands --help", 2)
        traceback.print_exc()
        return _say("this is a bug in manyhands; please report the lines above and `manyhands doctor`", 1)


def _say(message: str, code: int) -> int:
    print(f"manyhands: {message}", file=sys.stderr)
    return code
