"""Every model of the catalog under every spread of it: as good as alone, every row seen once an epoch."""

import pytest
from tests.tasks import write_labelled

from manyhands.catalog import MODELS, SPREADS
from manyhands.spread.training import train

pytest.importorskip("torch", reason="crews need PyTorch")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("rows") / "rows.txt", 6000, 3)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("spread", [spread for spread in SPREADS if spread != "single"])
def test_a_crew_is_as_good_as_one(tmp_path, rows, name, spread):
    alone = train(rows, tmp_path / "alone", model=name, epochs=3)
    crew = train(rows, tmp_path / "crew", model=name, epochs=3, spread=spread, workers=2)
    assert crew.record["spread"] == spread
    assert crew.record["workers"] == 2
    assert crew.record["examples_seen"] == alone.record["examples_seen"] == 18_000
    assert crew.record["traffic"]["bytes"] > 0
    losses = [run.record["scores"]["train"][-1]["loss"] for run in (alone, crew)]
    assert losses[1] < losses[0] + 0.05
    texts = ["awful broken food", "a great lovely day", "fine and decent"]
    likeliest = [[row[0][0] for row in run.bundle.predict(texts)] for run in (alone, crew)]
    assert likeliest[0] == likeliest[1] == ["0", "2", "1"]
    assert not list(tmp_path.glob(".*"))
