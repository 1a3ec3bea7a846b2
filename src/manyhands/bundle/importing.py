"""``import``: a model that fastText trained becomes a bundle, with the same predictions or vectors."""

import os
from typing import Any

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig, write_bundle
from manyhands.formats.fasttext import holds_word_vectors, read_fasttext, read_fasttext_vectors
from manyhands.formats.fasttext_model import ImportedFastText
from manyhands.formats.fasttext_vectors import ImportedWordVectors
from manyhands.models.model import Model
from manyhands.settings import TextSettings


def import_fasttext(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, overwrite: bool = False
) -> Bundle:
    """Read a ``.bin`` or ``.ftz`` file and write it as a bundle: a classifier, or word vectors.

    fastText splits at blanks and nothing else, so texts are taken as they are.
    """
    name, model, args = _open(path)
    facts = model.facts()
    labels = facts.pop("labels", [])
    config = BundleConfig(
        version=VERSION,
        model=name,
        labels=labels,
        label_scheme="as-is" if labels else "none",
        text=TextSettings(lower=False, punctuation="keep", html=False),
        facts=facts,
        settings=args,
    )
    bundle = Bundle(config, model)
    write_bundle(bundle, out, {"model": name, "settings": args}, overwrite=overwrite)
    return bundle


def _open(path: str | os.PathLike[str]) -> tuple[str, Model, dict[str, Any]]:
    """The model by its name in the catalog, and the arguments that fastText trained it with."""
    if holds_word_vectors(path):
        vectors = read_fasttext_vectors(path)
        return "imported-vectors", ImportedWordVectors.of(vectors), vectors.args._asdict()
    classifier = read_fasttext(path)
    return "imported", ImportedFastText(classifier), classifier.args._asdict()
