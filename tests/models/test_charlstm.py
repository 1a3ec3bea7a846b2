"""The network of letters against PyTorch: the loss of a batch, and its gradient in every array."""

import numpy as np
import pytest

from manyhands.models.learner import Piece, arrays_of
from manyhands.models.words.charlstm import CharLstm, CharLstmSettings
from manyhands.training.exchange import Alone
from tests.models.test_lstm import gates_in_their_order
from tests.tasks import begin, running_text, unlabelled

torch = pytest.importorskip("torch", reason="PyTorch is what the network is compared with")

SETTINGS = CharLstmSettings(
    min_count=1,
    dim=12,
    hidden_size=16,
    char_dim=8,
    sample=1.0,
    batch_size=70,
    optimizer="sgd",
    momentum=0,
    clip_norm=1e9,
)


def learner_and_piece():
    learner, feed = begin(CharLstm, SETTINGS, unlabelled(running_text(40)))
    arrays_of(learner)["contexts"][:] = np.random.default_rng(0).normal(
        0, 0.3, arrays_of(learner)["contexts"].shape
    )
    return learner, feed.piece(Piece(0, 0, feed.rows(0)), 0)


def theirs(weights, words, piece):
    """The mean loss of a piece, by PyTorch, and its gradient by our names."""
    tensors = {name: torch.tensor(array.copy(), requires_grad=True) for name, array in weights.items()}
    order = gates_in_their_order("lstm", 16)
    layer = torch.nn.LSTM(8, 16, batch_first=True)
    names = {"weight_ih_l0": "layer0.inputs", "weight_hh_l0": "layer0.recurrent", "bias_ih_l0": "layer0.bias"}
    with torch.no_grad():
        layer.bias_hh_l0.zero_()
        for part, name in names.items():
            getattr(layer, part).copy_(torch.tensor(weights[name][order]))

    def vector(word):
        letters = torch.tensor(list(words[word].encode()))
        states, _ = layer(tensors["embedding"][letters][None])
        return tensors["output"] @ states[0, -1] + tensors["output_bias"]

    total, pairs = 0.0, 0
    log = torch.nn.functional.logsigmoid
    for i in range(piece.begin, piece.end):
        x = vector(piece.words[i])
        first = max(piece.firsts[i], i - int(piece.reaches[i]))
        last = min(piece.lasts[i], i + int(piece.reaches[i]) + 1)
        near = [int(piece.words[j]) for j in range(first, last) if j != i]
        far = piece.drawn[i // 16 * piece.draws : (i // 16 + 1) * piece.draws].astype(int)
        total -= log(tensors["contexts"][near] @ x).sum()
        total -= SETTINGS.negatives * len(near) / piece.draws * log(-(tensors["contexts"][far] @ x)).sum()
        pairs += len(near)
    (total / pairs).backward()
    back = np.argsort(order)
    found = {name: tensors[name].grad.numpy() for name in ("embedding", "output", "output_bias", "contexts")}
    found |= {name: getattr(layer, part).grad.numpy()[back] for part, name in names.items()}
    return total.item(), pairs, found


def test_a_step_is_along_pytorchs_gradient():
    learner, piece = learner_and_piece()
    weights = {name: array.copy() for name, array in arrays_of(learner).items() if "speeds" not in name}
    words = learner.model().sampling.vocabulary.words.to_pylist()
    total, pairs, expected = theirs(weights, words, piece)
    loss = learner.learn(piece, 1.0, 0, Alone())
    assert loss.rows == pairs
    assert loss.total == pytest.approx(total, rel=1e-4)
    assert expected.keys() == weights.keys()
    for name, gradient in expected.items():
        moved = arrays_of(learner)[name] - weights[name]
        assert np.allclose(-moved, gradient, atol=2e-5), name


def test_the_vector_of_a_word_is_the_same_known_or_spelled():
    learner, piece = learner_and_piece()
    learner.learn(piece, 0.1, 0, Alone())
    embedding = learner.model().embedding(None)
    words = embedding.vocabulary.words.to_pylist()
    spelled, known = embedding.spell(words)
    assert known.all()
    assert np.allclose(spelled, embedding.vectors, atol=1e-5)
