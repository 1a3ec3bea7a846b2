"""``manyhands train``: a dataset, or raw reviews, to a trained model."""

import json
from typing import Annotated, Any

import typer

from manyhands.cli import interrupt
from manyhands.cli.options import (
    AsJson,
    BundleOut,
    Format,
    LabelChoice,
    LabelField,
    Memory,
    Overwrite,
    TextField,
    Threads,
    given,
)
from manyhands.cli.progress import watch
from manyhands.errors import ResumableError, WrittenElsewhereError

Data = Annotated[
    list[str],
    typer.Argument(
        help="A prepared dataset; or raw files, of which all rows are trained on.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    data: Data,
    out: BundleOut,
    model: Annotated[
        str,
        typer.Option(
            help="Of labels: ngrams, the best and quickest, fasttext or lstm; of words: skipgram or charlstm."
        ),
    ] = "ngrams",
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the rows: 4 for ngrams, 5 for the others.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="First learning rate; it falls to nothing. Each model has its own."),
    ] = None,
    ngrams: Annotated[
        int | None, typer.Option(help="Runs of up to so many words: 3, or 2 for fasttext.")
    ] = None,
    chars: Annotated[str | None, typer.Option(help="Also runs of letters, like 3-5.")] = None,
    buckets: Annotated[
        int | None, typer.Option(help="Slots for runs, at most: 2^24, 2^21 for fasttext, 2^20 for skipgram.")
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(help="Leave out words and runs that stand less often: 2; of word vectors 5."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="Length of the vectors: 10 for fasttext, 100 for the others.")
    ] = None,
    words: Annotated[
        int | None,
        typer.Option(help="Know so many words at most, the most frequent: 30,000; word vectors 1,000,000."),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(help="A file of word vectors that lstm begins with, of --dim numbers each.")
    ] = None,
    cell: Annotated[
        str | None, typer.Option(help="lstm, gru, or equations: the same as lstm, plain and slow.")
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(help="Size of the state of lstm, or of each layer's, like 128,256: 64; charlstm: 256."),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of lstm: 1.")] = None,
    ways: Annotated[int | None, typer.Option(help="2: lstm reads from the end as well; 1.")] = None,
    dropout: Annotated[
        float | None, typer.Option(help="Share of numbers between the layers of lstm that are dropped: 0.")
    ] = None,
    length: Annotated[int | None, typer.Option(help="lstm reads so many words of a text: 300.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Rows that lstm learns at once: 128, of few less; words of charlstm: 2,048."),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="What lstm keeps of its states: the max of each number, mean or last.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="How lstm moves: adam, adamw or sgd.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd: 0.9.")] = None,
    decay: Annotated[float | None, typer.Option(help="Weight decay of lstm: 0.")] = None,
    clip: Annotated[float | None, typer.Option(help="Longest gradient of lstm: 5.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="How the rate falls: linear, cosine, or constant.")
    ] = None,
    warm_up: Annotated[
        float | None, typer.Option(help="Share of the training in which the rate climbs first: 0.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="softmax, one-vs-all or, for fasttext, negative; chosen by the labels.")
    ] = None,
    negatives: Annotated[
        int | None, typer.Option(help="Labels, or words, drawn beside the true one: 5.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Words to either side that count as a word's neighbours: 5.")
    ] = None,
    sample: Annotated[
        float | None, typer.Option(help="Skip words at random that are a larger share of the text: 1e-4.")
    ] = None,
    letter_dim: Annotated[
        int | None, typer.Option(help="Length of the vectors of letters, for charlstm: 64.")
    ] = None,
    class_weights: Annotated[
        str | None, typer.Option(help="balanced: rows of rare labels count more; none by default.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better validation score: 2.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all that is random: 0.")] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic", help="Same weights in every run; one thread learns.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from where this run was stopped.")] = False,
    checkpoint_seconds: Annotated[
        float | None, typer.Option(help="Keep a checkpoint every so many seconds: 60.")
    ] = None,
    continue_from: Annotated[
        str | None, typer.Option(help="A bundle whose weights to begin with; new words and labels are added.")
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(
            help="single: threads of this process; allreduce: a crew of processes; average: tasks of Spark."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of a crew on this machine, the cores shared out: 2.")
    ] = None,
    balance: Annotated[
        str | None,
        typer.Option(help="When a crew measures its shares anew: every:N (epochs), steps:N, once, off."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Machines of a crew, or from:to, as 1:2; each runs this command.")
    ] = None,
    rendezvous: Annotated[
        str | None, typer.Option(help="Where machines meet: address:port of one of them.")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="How often a crew that lost a worker begins again: 10.")
    ] = None,
    stall_seconds: Annotated[
        float | None, typer.Option(help="A worker that does not answer for so long is given up: 120.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Parts of the rows that Spark trains apart: as many as it has cores.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="How often the parts are averaged, 1 for once at the end: as often as epochs."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs: local[4], spark://host:7077, yarn; all cores here.")
    ] = None,
    outer_momentum: Annotated[
        float | None, typer.Option(help="Nesterov momentum of the averages, from round to round: 0.")
    ] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option(help="A setting of Spark, like spark.executor.memory=4g.")
    ] = None,
    track: Annotated[str | None, typer.Option(help="tensorboard: write event files as well.")] = None,
    format: Format = "auto",  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    labels: LabelChoice = None,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier or word vectors; validate after each epoch, keep the best, write it and a record."""
    from manyhands.spread.group import inside as inside_crew
    from manyhands.spread.training import train as run

    settings = given(
        epochs=epochs,
        rate=rate,
        ngrams=ngrams,
        chars=chars,
        buckets=buckets,
        min_count=min_count,
        dim=dim,
        words=words,
        vectors=vectors,
        cell=cell,
        hidden=hidden,
        layers=layers,
        ways=ways,
        dropout=dropout,
        length=length,
        batch=batch,
        pool=pool,
        optimizer=optimizer,
        momentum=momentum,
        decay=decay,
        clip=clip,
        schedule=schedule,
        warm_up=warm_up,
        loss=loss,
        negatives=negatives,
        window=window,
        sample=sample,
        letter_dim=letter_dim,
        class_weights=class_weights,
        patience=patience,
        seed=seed,
        deterministic=deterministic,
        checkpoint_seconds=checkpoint_seconds,
        spread=spread,
        workers=workers,
        balance=balance,
        nodes=nodes,
        rendezvous=rendezvous,
        restarts=restarts,
        stall_seconds=stall_seconds,
        partitions=partitions,
        rounds=rounds,
        master=master,
        outer_momentum=outer_momentum,
        spark_conf=spark_conf or None,
    )
    try:
        with watch() as progress:
            trained = run(
                data,
                out,
                model=model,
                resume=resume,
                continue_from=continue_from,
                track=track,
                overwrite=overwrite,
                memory=memory,
                threads=threads,
                reading=given(format=format, text_field=text_field, label_field=label_field, labels=labels),
                progress=progress,
                **settings,
            )
    except interrupt.Interrupt:
        from manyhands.train.checkpoint import checkpoint_folder, checkpoints

        if not checkpoints(checkpoint_folder(out)):
            raise
        raise ResumableError("interrupted; go on with the same command and --resume") from None
    except WrittenElsewhereError as done:
        if not inside_crew():
            typer.echo(str(done))
        return
    if as_json:
        typer.echo(json.dumps(trained.record))
    else:
        _tell(out, trained.record)


def _tell(out: str, record: dict[str, Any]) -> None:
    scores, data = record["scores"], record["data"]
    typer.echo(
        f"{out}: {record['model']}, {data['rows']:,} rows in {record['seconds']:.1f} s, "
        f"loss {scores['train'][-1]['loss']:.4f}"
    )
    if data["left_out"]:
        typer.echo(f"{data['left_out']:,} rows had no text or no label of use and were left out")
    if "best_epoch" in scores:
        best = scores["valid"][scores["best_epoch"] - 1]
        turn = "round" if record["spread"] == "average" else "epoch"
        typer.echo(f"validation: {_told(best)} after {turn} {scores['best_epoch']}, which was kept")
    if "test" in scores:
        typer.echo(f"test: {_told(scores['test'])} on {scores['test']['rows']:,} rows")


def _told(scores: dict[str, Any]) -> str:
    if "log_likelihood" in scores:
        return f"loss {-scores['log_likelihood']:.4f}"
    return f"accuracy {scores['accuracy']:.4f}, macro F1 {scores['macro_f1']:.4f}"
