"""The network against PyTorch, in value and gradient; what is dropped; and how rows are fed."""

import numpy as np
import pytest

from manyhands.catalog import OPTIMIZERS, load
from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Piece, arrays_of
from manyhands.models.losses import LOSSES
from manyhands.models.recurrent.backprop import Work, gradients, scores_of
from manyhands.models.recurrent.gradient import Gradient
from manyhands.models.recurrent.lstm import Lstm
from manyhands.models.recurrent.network import Network, Shape
from manyhands.models.recurrent.sequences import Batch, Lexicon, Packed, SequenceFeed, Sequences, find_words
from manyhands.models.recurrent.settings import LstmSettings
from manyhands.records import Silent
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone
from tests.tasks import RESOURCES, begin, examples

torch = pytest.importorskip("torch", reason="PyTorch is what the network is compared with")

TEXTS = [[3, 1, 4, 1, 5], [2, 6], [], [5, 3, 5, 0, 2, 1, 1]]
LABELS = np.array([2, 0, 1, 1], np.int32)
WEIGHTS = np.array([1, 0.5, 2, 1], np.float32)
EVERY = pytest.mark.parametrize(
    ("cell", "both", "widths", "pool"),
    [
        (cell, both, widths, pool)
        for cell in ("lstm", "gru", "equations")
        for both in (False, True)
        for widths in ((16,), (16, 21))
        for pool in ("max", "mean", "last")
    ],
)


def packed(texts):
    """Numbers of words stand for words here, so that a lexicon of their hashes gives the same numbers."""
    corpus = corpus_of(from_strings([" ".join(f"w{word}" for word in text) for text in texts]))
    hashes = np.zeros(7, np.uint64)
    for number, name in enumerate(corpus.words.strings()):
        hashes[int(name[1:])] = corpus.hashes[number]
    return Sequences(corpus, Lexicon(hashes), 100).pack(np.arange(len(texts)))


def network(cell="lstm", both=False, widths=(16,)):
    net = Network.at_random(Shape(cell, (5, *widths), both, 3), 7, seed=1)
    draw = np.random.default_rng(2)
    for name, array in net.rest.items():
        net.rest[name] = array + draw.normal(0, 0.1, array.shape).astype(np.float32)
    return net


def batch_of(texts):
    order = texts.rows
    return Batch(texts, LABELS[order], np.arange(len(order) + 1), WEIGHTS[order], order)


def gates_in_their_order(cell, width):
    """PyTorch keeps the candidate before the output gate."""
    parts = np.arange(4 * width).reshape(4, width)
    return np.arange(3 * width) if cell == "gru" else parts[[0, 1, 3, 2]].ravel()


def theirs(net, pool):
    """PyTorch's layers with our numbers: the scores of TEXTS, and every gradient by our names."""
    shape = net.shape
    embedding = torch.tensor(net.embedding, requires_grad=True)
    output = torch.tensor(net.rest["output"], requires_grad=True)
    bias = torch.tensor(net.rest["output_bias"], requires_grad=True)
    kind = torch.nn.GRU if shape.cell == "gru" else torch.nn.LSTM
    levels, below = [], 5
    for level, width in enumerate(shape.widths[1:]):
        layer = kind(below, width, batch_first=True, bidirectional=shape.bidirectional)
        order = gates_in_their_order(shape.cell, width)
        for suffix, way in list(zip(("", "_reverse"), ("", "back."), strict=True))[: len(shape.directions)]:
            ours = net.layer(level, way)
            with torch.no_grad():
                getattr(layer, f"weight_ih_l0{suffix}").copy_(torch.tensor(ours["inputs"][order]))
                getattr(layer, f"weight_hh_l0{suffix}").copy_(torch.tensor(ours["recurrent"][order]))
                getattr(layer, f"bias_ih_l0{suffix}").copy_(torch.tensor(ours["bias"][order]))
                getattr(layer, f"bias_hh_l0{suffix}").zero_()
                if shape.cell == "gru":
                    getattr(layer, f"bias_hh_l0{suffix}")[2 * width :] = torch.tensor(ours["state_bias"])
        levels.append((layer, width, order))
        below = width * len(shape.directions)
    scores = torch.stack([_score(text, embedding, levels, shape, pool) @ output.T + bias for text in TEXTS])
    losses = torch.nn.functional.cross_entropy(scores, torch.tensor(LABELS).long(), reduction="none")
    cost = (losses * torch.tensor(WEIGHTS)).sum()
    cost.backward()
    found = {"embedding": embedding.grad, "output": output.grad, "output_bias": bias.grad}
    for level, (layer, width, order) in enumerate(levels):
        back = np.argsort(order)
        for suffix, way in list(zip(("", "_reverse"), ("", "back."), strict=True))[: len(shape.directions)]:
            head = f"layer{level}.{way}"
            found[f"{head}inputs"] = getattr(layer, f"weight_ih_l0{suffix}").grad[back]
            found[f"{head}recurrent"] = getattr(layer, f"weight_hh_l0{suffix}").grad[back]
            found[f"{head}bias"] = getattr(layer, f"bias_ih_l0{suffix}").grad[back]
            if shape.cell == "gru":
                found[f"{head}state_bias"] = getattr(layer, f"bias_hh_l0{suffix}").grad[2 * width :]
    return torch.softmax(scores, 1).detach().numpy(), cost.item(), {n: g.numpy() for n, g in found.items()}


def _score(text, embedding, levels, shape, pool):
    if not text:
        return torch.zeros(shape.pooled)
    states = embedding[torch.tensor(text)][None]
    for layer, _, _ in levels:
        states, _ = layer(states)
    states, width = states[0], shape.widths[-1]
    if pool == "max":
        return states.max(dim=0).values
    if pool == "mean":
        return states.mean(dim=0)
    return torch.cat([states[-1, :width], states[0, width:]])


@EVERY
def test_it_equals_pytorch_in_value_and_gradient(cell, both, widths, pool):
    net, texts = network(cell, both, widths), packed(TEXTS)
    scores, cost, expected = theirs(net, pool)
    work = Work(net, net.embedding, LOSSES["softmax"], pool)
    found = np.empty((len(TEXTS), 3))
    found[texts.rows] = scores_of(work, texts)
    assert np.allclose(found, scores, atol=1e-5)
    gradient = Gradient(net, np.arange(7))
    gradient.add(gradients(work, batch_of(texts)))
    assert gradient.loss.total == pytest.approx(cost, rel=1e-5)
    assert gradient.loss.rows == 4.5
    assert gradient.arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert np.allclose(-gradient.arrays[name], array, atol=1e-5), name


@pytest.mark.parametrize("both", [False, True])
def test_the_gradient_of_what_was_dropped_is_that_of_the_same_loss(both):
    """Against differences of the loss, which drops the same numbers for the same seed."""
    net, texts = network("lstm", both, (16, 16)), packed(TEXTS)
    work = Work(net, net.embedding, LOSSES["softmax"], "mean", dropout=0.4, seed=9)
    batch = batch_of(texts)
    found = gradients(work, batch)
    draw, step = np.random.default_rng(0), np.float32(1e-2)
    for name, array in {**net.rest, "embedding": net.embedding}.items():
        values = found.vectors if name == "embedding" else found.rest[name]
        rows = found.words if name == "embedding" else np.arange(len(array))
        flat, numbers = array[rows].reshape(-1), np.asarray(values).reshape(-1)
        for at in draw.integers(len(flat), size=3):
            place = np.unravel_index(at, array[rows].shape)
            target = (rows[place[0]], *place[1:])
            before, costs = array[target], []
            for way in (1, -1):
                array[target] = before + way * step
                costs.append(gradients(work, batch).cost)
            array[target] = before
            slope = (costs[0] - costs[1]) / (2 * float(step))
            assert -numbers[at] == pytest.approx(slope, abs=3e-3), name


def test_what_is_dropped_does_not_depend_on_the_company():
    net = network("lstm", False, (16, 16))
    work = Work(net, net.embedding, LOSSES["softmax"], "max", dropout=0.5, seed=3)
    whole = Gradient(net, np.arange(7))
    whole.add(gradients(work, batch_of(packed(TEXTS))))
    apart = Gradient(net, np.arange(7))
    for number, text in enumerate(TEXTS):
        rows = np.array([number])
        one = Batch(packed([text]), LABELS[rows], np.arange(2), WEIGHTS[rows], rows)
        apart.add(gradients(work, one))
    assert np.allclose(whole.buffer, apart.buffer, atol=1e-5)
    other = Gradient(net, np.arange(7))
    other.add(
        gradients(
            Work(net, net.embedding, LOSSES["softmax"], "max", dropout=0.5, seed=4), batch_of(packed(TEXTS))
        )
    )
    assert not np.allclose(whole.buffer, other.buffer, atol=1e-3)


def test_a_batch_in_which_nothing_is_known_moves_the_output_alone():
    net = network()
    none = packed([[1]])
    empty = Packed(none.words[:0], none.counts[:0], none.starts[:0], np.zeros(1, np.int64), none.rows)
    batch = Batch(empty, np.array([1], np.int32), np.array([0, 1]), np.ones(1, np.float32), none.rows)
    found = Gradient(net, np.arange(0))
    found.add(gradients(Work(net, net.embedding, LOSSES["softmax"], "max"), batch))
    assert not any(array.any() for name, array in found.arrays.items() if name.startswith("layer"))
    assert found.arrays["output_bias"][1] > 0 > found.arrays["output_bias"][0]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("adam", lambda p: torch.optim.Adam(p, 0.01)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
        ("sgd", lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)),
    ],
)
def test_steps_are_those_of_pytorch(name, theirs):
    draw = np.random.default_rng(0)
    array = draw.normal(size=(6, 4)).astype(np.float32)
    parameter = torch.nn.Parameter(torch.tensor(array))
    their, our = (
        theirs([parameter]),
        load(OPTIMIZERS, "optimizer", name)({"a": array}, 0.9, 0.1 if name == "adamw" else 0.0),
    )
    for _ in range(20):
        gradient = draw.normal(size=(6, 4)).astype(np.float32)
        parameter.grad = torch.tensor(gradient)
        their.step()
        our.begin_step()
        our.move("a", np.arange(6), -gradient, 0.01)
    assert np.allclose(array, parameter.detach().numpy(), atol=1e-5)


def test_every_row_comes_once_an_epoch_in_new_company_and_like_lengths_together():
    rows = examples(1000)
    sequences = Sequences(rows.corpus, find_words(rows.corpus, 1000, 1, 2, None), 12)
    feed = SequenceFeed(rows, sequences, 48, seed=3)
    epochs = []
    for epoch in range(2):
        cut = [Piece(b, *part) for b in range(len(feed)) for part in ((0, 17), (17, feed.rows(b)))]
        parts = [part for piece in cut for part in feed.piece(piece, epoch).slices]
        assert sorted(np.concatenate([part.rows for part in parts]).tolist()) == list(range(1000))
        lengths = [part.packed.lengths for part in parts]
        assert max(int(length.max()) for length in lengths) == 12, "no text is longer than asked for"
        padded = sum(len(length) * int(length.max()) for length in lengths)
        assert padded < 1.1 * sum(int(length.sum()) for length in lengths)
        epochs.append([part.rows.tolist() for part in parts])
    assert epochs[0] != epochs[1]


def test_words_by_frequency_and_known_ones_first():
    corpus = corpus_of(from_strings(["a b b c c c", "rare"]))
    words = corpus.words.strings()
    found = find_words(corpus, 2, 2, 1, None)
    assert [words[corpus.hashes.tolist().index(h)] for h in found.hashes] == ["c", "b"]
    more = find_words(corpus, 3, 1, 1, Lexicon(found.hashes[1:]))
    assert more.hashes[0] == found.hashes[1]
    assert sorted(words[corpus.hashes.tolist().index(h)] for h in more.hashes) == ["a", "b", "c"]


def test_vectors_of_a_file_are_where_it_begins(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 4\nawful 1 2 3 4\nunheardof 9 9 9 9\nfood 5 6 7 8\n")
    rows, settings = examples(300), LstmSettings(dim=4, hidden_size=16, pretrained_vectors=str(path))
    learner = Lstm.begin(settings, rows, None, RESOURCES, Silent(), Alone())
    table = arrays_of(learner)["embedding"]
    assert sum((row == [1, 2, 3, 4]).all() or (row == [5, 6, 7, 8]).all() for row in table) == 2
    with pytest.raises(UsageError, match="line 2 has 4 numbers; --dim is 5"):
        Lstm.begin(
            LstmSettings(dim=5, pretrained_vectors=str(path)), rows, None, RESOURCES, Silent(), Alone()
        )
    path.write_text("zzz 1 2 3 4\n")
    with pytest.raises(InputError, match="for none of the words"):
        Lstm.begin(settings, rows, None, RESOURCES, Silent(), Alone())
    path.write_text("awful 1 2 x 4\n")
    with pytest.raises(InputError, match="not a vector"):
        Lstm.begin(settings, rows, None, RESOURCES, Silent(), Alone())


@pytest.mark.parametrize(
    "more", [{"cell": "gru"}, {"cell": "equations"}, {"bidirectional": True, "hidden_size": "16,24"}]
)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_every_choice_learns(more, optimizer):
    rows = examples(600)
    rate = 0.5 if optimizer == "sgd" else 0.01
    settings = LstmSettings(
        dim=16, hidden_size=more.pop("hidden_size", 16), dropout=0.1, optimizer=optimizer, **more
    )
    learner, feed = begin(Lstm, settings, rows)
    losses = []
    for epoch in range(4):
        crew = Alone()
        sums = [
            learner.learn(feed.piece(Piece(b, 0, feed.rows(b)), epoch), rate, b, crew)
            for b in range(len(feed))
        ]
        losses.append(sum(loss.total for loss in sums) / sum(loss.rows for loss in sums))
        assert crew.clock.seconds.keys() == {"forward", "backward", "update"}
    assert losses[-1] < 0.25 * losses[0]
