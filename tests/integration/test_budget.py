"""Money: a run ends just before its budget is spent, and goes on from there with a larger one."""

import json
import re
from pathlib import Path

import pytest
from tests.tasks import write_labelled

from manyhands import prepare

# A dollar a second.
LONG = "--model lstm --epochs 10000 --early-stopping 10000 --out run --price 3600".split()
ATTEMPTS = 4  # a machine that stands still for half a second now and then is no reason to fail


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(str(write_labelled(folder / "raw.txt", 3000, 2)), folder / "data")
    return folder / "data"


def spent(ended) -> float:
    assert ended.code == 5, ended.err
    return float(re.search(r"stopped at its budget, with \$([\d.]+) of", ended.err)[1])


def test_a_run_ends_within_two_percent_of_its_budget_and_goes_on(manyhands, data, tmp_path):
    budgets = range(15, 15 * (ATTEMPTS + 1), 15)
    shares = []
    for budget in budgets:  # each goes on from the one before: its budget is for all parts together
        resume = ["--resume"] if shares else []
        shares.append(spent(manyhands("train", data, *LONG, "--budget", str(budget), *resume)) / budget)
        if 0.98 <= shares[-1] <= 1:
            break
    assert 0.98 <= shares[-1] <= 1, shares
    again = manyhands("train", data, *LONG, "--budget", "5", "--resume")
    assert again.code == 2
    assert "give a --budget of more than $5.00" in again.err


def test_a_crew_stops_at_its_budget_all_together(manyhands, data, tmp_path):
    crew = [*LONG, "--spread", "allreduce", "--workers", "2", "--budget"]
    first = manyhands("train", data, *crew, "8")
    if first.code == 2:  # on a busy machine it takes longer to get ready
        first = manyhands("train", data, *crew, "40")
    assert spent(first) > 4
    assert sorted(path.suffix for path in (tmp_path / ".run.checkpoint").iterdir())[-1] == ".safetensors"


def test_a_price_alone_is_recorded(manyhands, data, tmp_path):
    done = manyhands("train", data, "--out", "run", "--price", "0.40", "--epochs", "1")
    price = json.loads((tmp_path / "run" / "record.json").read_text())["price"]
    assert (price["per_hour"], price["currency"]) == (0.40, "USD")
    assert 0 < price["total"] < 0.01
    assert "cost: $0.00" in done.out
