"""What a probe makes of what its runs have counted: the runs themselves are made up."""

from dataclasses import replace

import pytest

from manyhands import prepare
from manyhands.plan.probe import _Prober, _Taken, probe
from manyhands.plan.work import Pattern, Work
from tests.plan.test_exchange import LINK, parts

ROWS, SAMPLE = 4000, 1250  # as 400 rows take 0.8 s, and a run of the probe 2.5
MB = 1_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    lines = (f"__label__{n % 2} word{n} is {'good' if n % 2 else 'bad'} number {n}\n" for n in range(ROWS))
    (folder / "rows.txt").write_text("".join(lines))
    prepare(str(folder / "rows.txt"), folder / "data", valid=0, test=0)
    return str(folder / "data")


def made_up(sent: dict[str, int], rounds: int):
    """Runs of a millisecond a row, of a model that is twice as large of four times the rows."""

    def train(self: _Prober, rows: int, *, threads: int, spread: str = "single", **settings) -> _Taken:
        learning = rows * settings["epochs"] / 1000
        told = (sent, rounds) if spread != "single" and settings.get("apart", True) else ({}, 1)
        if spread == "server" and "apart" not in settings and self._model != "lstm":
            told = ({"weights": 3 * MB, "moves": 0, "states": 0}, 9)  # they learn in the same memory
        return _Taken(2 * learning, learning, 0.0, *told, MB * (rows / 100) ** 0.5, 1.0, learning)

    return train


def work_of(
    data: str, monkeypatch, model: str, spread: str, sent: dict[str, int], rounds: int, **more
) -> Work:
    monkeypatch.setattr(_Prober, "_train", made_up(sent, rounds))
    monkeypatch.setattr("manyhands.plan.probe.cores", lambda: 2)
    return probe(data, model=model, spread=spread, **more).work


def test_averages_send_weights_to_all_and_parts_of_moves_to_each_other(data, monkeypatch):
    """4 rounds, in each of which two workers moved 2 MB each, of which 3 were different."""
    sent = {"weights": 4 * 10 * MB, "moves": 4 * 2 * 2 * MB, "means": 4 * 3 * MB}
    work = work_of(data, monkeypatch, "fasttext", "average", sent, 4, epochs=1)
    assert work.pattern is Pattern.MEANS and not work.in_memory
    assert work.exchange_bytes == 2 * MB and work.exchange_rows == pytest.approx(SAMPLE / 2 / 4)
    assert 2**work.moves_grow == pytest.approx(1.5)
    grown = (ROWS / SAMPLE) ** 0.5  # as the model of four times the rows is twice as large
    assert work.weights_bytes == pytest.approx(10 * MB * grown)
    each = 2 * MB * (ROWS / SAMPLE) ** work.moves_grow  # of a turn, which has as many more rows
    over = work.weights_bytes + each / 2 + 1.5 * each / 2
    found = parts("2x small/1", work, serial=0.0)["exchange"]
    assert found == pytest.approx(4 * over / LINK)


def test_replicas_of_a_server_are_counted_as_if_on_machines(data, monkeypatch):
    sent = {"weights": 3 * MB, "moves": 20 * MB, "states": 7 * MB}
    work = work_of(data, monkeypatch, "fasttext", "server", sent, 40, epochs=1, shards=2)
    assert (work.pattern, work.shards, work.waits) == (Pattern.SHARDS, 2, False)
    assert work.in_place and work.in_memory and work.most_stretch == 16
    assert work.exchange_bytes == MB / 2 and work.exchange_rows == pytest.approx(SAMPLE / 2 / 20)
    assert work.end_bytes == pytest.approx(3 * 3 * MB * (ROWS / SAMPLE) ** 0.5)


def test_every_worker_of_a_server_learns_whole_batches(data, monkeypatch):
    """An all-reduce shares each of them, and so has twice as many exchanges."""
    sent = {"weights": 3 * MB, "moves": 20 * MB, "states": 7 * MB}
    served = work_of(data, monkeypatch, "lstm", "server", sent, 40, epochs=1, batch_size=50)
    assert served.batch == 50 and not served.shared and not served.in_memory and served.most_stretch == 1
    assert served.exchange_bytes == MB / 2
    silent = replace(served, exchange_bytes=0.0, end_bytes=0.0)
    assert parts("2x small/1", silent, turn=1.0)["exchange"] == pytest.approx(ROWS / 50 / 2)
