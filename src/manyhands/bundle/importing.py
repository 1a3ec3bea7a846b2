"""``import``: a classifier that fastText trained becomes a bundle, with the same predictions."""

import os
from typing import Any

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig, write_bundle
from manyhands.formats.fasttext import read_fasttext
from manyhands.formats.fasttext_model import ImportedFastText
from manyhands.settings import TextSettings


def import_fasttext(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, overwrite: bool = False
) -> Bundle:
    """Read a ``.bin`` or ``.ftz`` file and write it as a bundle.

    fastText splits at blanks and nothing else, so texts are taken as they are.
    """
    model = ImportedFastText(read_fasttext(path))
    facts: dict[str, Any] = model.facts()
    config = BundleConfig(
        version=VERSION,
        model="imported",
        labels=facts.pop("labels"),
        label_scheme="as-is",
        text=TextSettings(lower=False, punctuation="keep", html=False),
        facts=facts,
        settings=facts["args"],
    )
    bundle = Bundle(config, model)
    write_bundle(bundle, out, {"model": "imported", "settings": facts["args"]}, overwrite=overwrite)
    return bundle
