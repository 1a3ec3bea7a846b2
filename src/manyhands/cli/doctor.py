"""``manyhands doctor``: what this machine has, what is missing, and how to get it."""

import json
from typing import Annotated

import typer

from manyhands.report.shown import amount


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show versions, cores, memory, and which extras are installed."""
    from rich.console import Console
    from rich.table import Table

    from manyhands.machine import examine

    facts = examine()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"manyhands {facts['manyhands']}, Python {facts['python']}, {facts['system']}")
    typer.echo(f"{facts['cores']} cores, {amount(facts['memory_bytes'], 'B')} memory")
    table = Table("part", "version", "what to do", box=None, pad_edge=False)
    for part in facts["parts"]:
        table.add_row(part["name"], part["version"] or "-", part["remedy"])
    Console(highlight=False).print(table)
