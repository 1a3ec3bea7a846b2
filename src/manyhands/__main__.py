"""``python -m manyhands`` is the command line."""

from manyhands.cli.main import run

run()
