"""``manyhands doctor``: what this machine has, what is missing, and how to get it."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from manyhands.cli.progress import amount


def add_to(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show versions, cores, memory, and which extras are installed."""
    from manyhands.machine import examine

    facts = examine()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    console = Console(highlight=False)
    console.print(
        f"manyhands {facts['manyhands']}, Python {facts['python']}, {facts['system']}", soft_wrap=True
    )
    console.print(f"{facts['cores']} cores, {amount(facts['memory_bytes'], 'B')} memory", soft_wrap=True)
    table = Table("part", "version", "what to do", box=None, pad_edge=False)
    for part in facts["parts"]:
        table.add_row(part["name"], part["version"] or "-", part["remedy"])
    console.print(table)
