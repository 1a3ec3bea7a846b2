"""``manyhands plan``: what a training would take and cost on machines that can be rented."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.cli.options import AsJson, add_verb, value_of
from manyhands.cli.progress import watch
from manyhands.cli.train import MODEL, Model, panels
from manyhands.errors import UsageError
from manyhands.settings import TrainingSettings, option

if TYPE_CHECKING:
    from manyhands.plan.choose import Option
    from manyhands.plan.on_spot import SpotOption
    from manyhands.plan.plan import Plan

SPREAD = "allreduce"
SHOWN = 12
NAMED = 5  # machines that are left out
PARTS = {
    "start": "processes start",
    "load": "rows are read and counted",
    "compute": "rows are learnt and validated",
    "wait": "for slower workers",
    "exchange": "what was learnt is sent",
}


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    """The options of ``train``, save those that say where workers are: the plan says that."""
    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    chosen, shared = load(LEARNERS, "model", model), load(SPREADS, "spread", spread)
    own = {*shared.Settings.model_fields, "budget", "price"}  # the plan says where, and for how much
    add_verb(app, plan, [chosen.Settings, TrainingSettings], lambda: panels((), own), own)


def explain_option(flag: str, arguments: list[str]) -> str:
    """Whose option it is, if another model has it."""
    from manyhands.training.job import whose_setting

    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    if flag in map(option, load(SPREADS, "spread", spread).Settings.model_fields):
        return f"{flag} is not for plan: it tries all clusters of the catalogue"
    return whose_setting(flag.lstrip("-").replace("-", "_"), model, spread)


def plan(
    settings: dict[str, Any],
    data: Annotated[
        str | None, typer.Argument(help="A prepared dataset; not with --runs.", show_default=False)
    ] = None,
    model: Model = MODEL,
    spread: Annotated[
        str, typer.Option(help=f"How several machines share the work: {', '.join(SPREADS)}.")
    ] = SPREAD,
    catalogue: Annotated[
        str,
        typer.Option(
            help="Machines and prices: aws, seeds-2019, a CSV file of yours, or SkyPilot's vms.csv."
        ),
    ] = "aws",
    storage: Annotated[
        Literal["local", "s3", "nfs"],
        typer.Option(help="Where the machines find the rows: on their disks, in S3, or on a file server."),
    ] = "local",
    target_hours: Annotated[
        float | None, typer.Option(help="Show the cheapest cluster that takes no longer.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Show the fastest cluster that costs no more.")] = None,
    max_machines: Annotated[int, typer.Option(min=1, max=1024, help="Machines of a cluster, at most.")] = 16,
    retired: Annotated[
        bool, typer.Option("--retired", help="Also machines that are no longer offered.")
    ] = False,
    spot: Annotated[
        bool, typer.Option("--spot", help="Spot machines, which are cheaper and are taken away now and then.")
    ] = False,
    traces: Annotated[
        str | None,
        typer.Option(help="Folder of recorded spot markets (SkyPilot's traces, or CSV) to replay."),
    ] = None,
    hours_between: Annotated[
        float, typer.Option(help="Hours between interruptions, on average, where there are no --traces.")
    ] = 12.0,
    explain: Annotated[
        str | None,
        typer.Option(help="Show where the time of this cluster goes, like '2x g3.16xlarge'."),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(help="Table of measured runs (CSV) to learn from, in place of a probe of this machine."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the time and the price of a training on machines that can be rented.

    Probes this machine with a few short trainings (about half a minute), then predicts all clusters of the
    catalogue. Ranges hold four of five runs.
    """
    from manyhands.plan.plan import plan as run
    from manyhands.plan.plan import plan_from_runs
    from manyhands.plan.work import Storage

    shared: dict[str, Any] = {"catalogue": catalogue, "machines": max_machines, "retired": retired}
    if runs is not None:
        if data is not None or settings:
            raise UsageError("--runs tells what was trained; leave out the data and all settings of train")
        made = plan_from_runs(runs, **shared)
    elif data is None:
        raise UsageError("there is nothing to plan; give a prepared dataset, or a table with --runs")
    else:
        with watch() as progress:
            where = Storage[storage.upper()]
            made = run(
                data, model=model, spread=spread, storage=where, progress=progress, **shared, **settings
            )
    if spot or traces is not None:
        _show_spot(made, traces, hours_between, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(_facts(made)))
    elif explain is not None:
        _explain(made, explain)
    else:
        _show(made, target_hours, budget)


def _facts(made: "Plan") -> dict[str, Any]:
    from manyhands.plan.choose import frontier

    best = {id(option) for option in frontier(made.options)}
    return {
        "catalogue": made.catalogue.name,
        "date": made.catalogue.dates,
        "currency": made.catalogue.currency,
        "probe_seconds": round(made.probe_seconds, 1),
        "costs": made.calibration.costs,
        "left_out": made.left_out,
        "options": [
            {
                "cluster": str(option.cluster),
                "hours": option.hours,
                "hours_range": [option.seconds.low / 3600, option.seconds.high / 3600],
                "price": option.money,
                "price_range": [option.money_of(option.seconds.low), option.money_of(option.seconds.high)],
                "on_devices": option.on_devices,
                "frontier": id(option) in best,
            }
            for option in made.options
        ],
    }


def _show(made: "Plan", target_hours: float | None, budget: float | None) -> None:
    if not made.options:
        small = ", and what it has cannot hold the model in its memory" if made.left_out else ""
        raise UsageError(f"the catalogue {made.catalogue.name} has no machine to offer{small}; see --retired")
    _print_options(made)
    for line in [*_choices(made, target_hours, budget), *_conditions(made)]:
        typer.echo(line)


def _print_options(made: "Plan") -> None:
    """The frontier, and of kinds of machines that are not on it the cheapest."""
    from manyhands.cli.figures import print_figures
    from manyhands.plan.choose import frontier

    best = frontier(made.options)
    kinds = {option.cluster.groups[0].instance.name for option in best}
    others: list[Option] = []
    for other in made.options:  # cheapest first: of each kind that is not there yet, one
        name = other.cluster.groups[0].instance.name
        if name not in kinds and len(best[:SHOWN]) + len(others) < SHOWN:
            kinds.add(name)
            others.append(other)
    shown = sorted([*best[:SHOWN], *others], key=lambda option: option.money)
    rows = []
    for each in shown:
        seconds = [each.seconds.seconds, each.seconds.low, each.seconds.high]
        rows.append(
            [
                str(each.cluster) + (" (GPU)" if each.on_devices else ""),
                *map(_time, seconds),
                *(_money(each.money_of(some)) for some in seconds),
                "frontier" if each in best else "",
            ]
        )
    heads = ["cluster", "time", "from", "to", made.catalogue.currency, "from", "to", ""]
    print_figures(heads, rows, names=("cluster", ""))


def _time(seconds: float) -> str:
    """
    >>> [_time(seconds) for seconds in (22.4, 500, 9000)]
    ['22 s', '8.3 min', '2.50 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.2f} h"


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.4f}"


def _choices(made: "Plan", target_hours: float | None, budget: float | None) -> list[str]:
    from manyhands.plan.choose import best_cluster, cheapest_within, fastest_for

    cheapest = made.options[0]
    fastest = min(made.options, key=lambda option: option.hours)
    said = []
    if target_hours is not None:
        found = cheapest_within(made.options, target_hours)
        said.append(
            f"cheapest within {target_hours:g} hours: {_told(found, made)}"
            if found
            else f"no cluster is likely to take no more than {target_hours:g} hours; "
            f"the fastest is {_told(fastest, made)}"
        )
        cheapest = found or cheapest
    if budget is not None:
        found = fastest_for(made.options, budget)
        said.append(
            f"fastest for {budget:g} {made.catalogue.currency}: {_told(found, made)}"
            if found
            else f"no cluster is likely to cost no more than {budget:g} {made.catalogue.currency}; "
            f"the cheapest is {_told(made.options[0], made)}"
        )
        cheapest = found or cheapest
    if not said:
        said = [f"cheapest: {_told(cheapest, made)}", f"fastest: {_told(fastest, made)}"]
    rival = best_cluster(made.options)
    if cheapest.cluster.machines == 1 and rival is not None:
        said.append(_why_one(cheapest, rival, made))
    return said


def _told(option: "Option", made: "Plan") -> str:
    return (
        f"{option.cluster}: {_time(option.seconds.seconds)}, {_money(option.money)} {made.catalogue.currency}"
    )


def _why_one(one: "Option", rival: "Option", made: "Plan") -> str:
    """Why several machines do not pay."""
    parts = made.explain(rival.cluster)
    sharing = float((parts.wait + parts.exchange + parts.start)[0] / parts.seconds[0])
    spent = f"{sharing:.0%} of its time goes into starting and sharing the work"
    name = one.cluster.groups[0].instance.name
    if rival.hours >= one.hours:
        return f"one {name} is cheaper and faster than {rival.cluster}: {spent}"
    faster, dearer = one.hours / rival.hours, rival.money / one.money
    return (
        f"one {name} is enough: {rival.cluster} would be {faster:.1f} times as fast for {dearer:.1f} times "
        f"the money; {spent}"
    )


def _conditions(made: "Plan") -> list[str]:
    from manyhands.plan.devices import device_named

    prices = f"{made.catalogue.currency}, {made.catalogue.name}, {made.catalogue.dates}"
    said = [f"prices: {prices}, on demand; from and to: four of five runs are between them"]
    if small := made.left_out:
        more = f" and {len(small) - NAMED} more" if len(small) > NAMED else ""
        said.append(
            f"left out, as half of their memory cannot hold the model: {', '.join(small[:NAMED])}{more}"
        )
    devices = sorted({g.device for o in made.options if o.on_devices for g in o.cluster.groups})
    if devices and made.probe_seconds:
        said.append("GPU: the same model in PyTorch; manyhands itself trains on processors")
        said += [f"{name}: {device_named(name).source}" for name in devices]
    return said


def _show_spot(made: "Plan", traces: str | None, hours_between: float, *, as_json: bool) -> None:
    from manyhands.cli.figures import print_figures
    from manyhands.plan.on_spot import on_spot
    from manyhands.plan.spot import read_traces, simulated_traces

    market = read_traces(traces) if traces is not None else simulated_traces(hours_between)
    options = on_spot(made.options, market, SHOWN)
    if as_json:
        typer.echo(json.dumps({"options": [_spot_facts(option) for option in options]}))
        return
    rows = [
        [
            str(each.option.cluster),
            *(_time(hours * 3600) for hours in each.hours),
            _money(each.money),
            f"{each.forecast.interruptions.middle:.0f}",
            _time(each.forecast.checkpoint_hours * 3600),
        ]
        for each in options
    ]
    heads = ["cluster", "time", "from", "to", made.catalogue.currency, "interruptions", "checkpoint every"]
    print_figures(heads, rows, names=heads[:1])
    said = traces or f"interruptions every {hours_between:g} hours on average"
    typer.echo(
        f"spot prices: {made.catalogue.currency}, {made.catalogue.name}, {made.catalogue.dates}; {said}"
    )


def _spot_facts(option: "SpotOption") -> dict[str, Any]:
    return {
        "cluster": str(option.option.cluster),
        "hours": option.hours[0],
        "hours_range": option.hours[1:],
        "price": option.money,
        "interruptions": option.forecast.interruptions._asdict(),
        "checkpoint_hours": option.forecast.checkpoint_hours,
    }


def _explain(made: "Plan", text: str) -> None:
    option = made.option(text)
    parts = made.explain(option.cluster)
    typer.echo(_told(option, made))
    if why := made.why_not(option.cluster):
        typer.echo(why)
    for name, what in PARTS.items():
        seconds = float(getattr(parts, name)[0])
        typer.echo(f"  {name:<10}{seconds:>14,.1f} s {seconds / option.seconds.seconds:>6.1%}  {what}")
