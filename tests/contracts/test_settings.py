"""A setting is written once: its name, default and help stand in its owner and nowhere else in the source."""

import ast
from pathlib import Path

import pytest

import manyhands
from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.settings import (
    Common,
    PrepareSettings,
    ReadingSettings,
    Settings,
    TextSettings,
    TrainingSettings,
)

SOURCE = Path(manyhands.__file__).parent
MODELS = {name: load(LEARNERS, "model", name).Settings for name in LEARNERS}
OWNERS: dict[str, type[Settings]] = {
    **{f"model {name}": kind for name, kind in MODELS.items()},
    **{f"spread {name}": load(SPREADS, "spread", name).Settings for name in SPREADS},
    "training": TrainingSettings,
    "reading": ReadingSettings,
    "prepare": PrepareSettings,
    "text": TextSettings,
}


@pytest.mark.parametrize("owner", OWNERS)
def test_every_setting_has_help_and_a_default(owner):
    for name, field in OWNERS[owner].model_fields.items():
        if not isinstance(field.default, Settings):
            assert (field.description and field.description[0].isupper()) or ":" in field.description, name
            assert field.description.endswith("."), name
            assert not field.is_required(), name


def test_no_two_owners_of_a_run_have_a_setting_of_the_same_name():
    run = [TrainingSettings, ReadingSettings]
    for model in MODELS.values():
        for spread in SPREADS:
            kinds = [model, *run, load(SPREADS, "spread", spread).Settings]
            names = [name for kind in kinds for name in kind.model_fields]
            assert len(names) == len(set(names))


def test_options_and_parameters_are_made_from_settings_and_not_written_again():
    """No verb, and nothing of the estimator or the tuner, has a parameter that is called like a setting."""
    names = {name for kind in (*MODELS.values(), TrainingSettings) for name in kind.model_fields}
    # Drawing a sample and searching have seeds of their own, runs that are compared a price, plans a budget.
    names -= {"seed", "price", "budget"}
    for path in [path for room in ("cli", "estimator", "tuning") for path in (SOURCE / room).glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                written = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
                assert not written & names, f"{node.name} of {path.name} writes {written & names}"


def test_an_option_that_owners_describe_differently_has_a_text_for_all():
    run = [*MODELS.values(), *(load(SPREADS, "spread", name).Settings for name in SPREADS), TrainingSettings]
    for name in {name for kind in run for name in kind.marked(Common)}:
        owners = [kind for kind in run if name in kind.model_fields]
        said = {kind.model_fields[name].description for kind in owners}
        texts = {mark.text for kind in owners if (mark := kind.marked(Common).get(name)) and mark.text}
        assert len(texts) == (len(said) > 1), f"{name}: {said}, {texts}"


def test_help_stands_in_one_place():
    source = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    for owner, kind in OWNERS.items():
        for name, field in kind.model_fields.items():
            words = field.description
            places = [path for path, text in source.items() if words and words in text]
            assert len(places) <= 1, f"the help of {name} of {owner} stands in {places}"
