"""The tables of the conventions are those of the code."""

from tests import vocabulary


def test_the_page_has_what_is_made():
    text = vocabulary.PAGE.read_text("utf-8")
    assert vocabulary.with_tables(text) == text, "run python -m tests.vocabulary"


def test_what_every_estimator_has():
    everyone = {name for name, _ in vocabulary.all_estimators()}
    parameters, attributes = vocabulary.parameters(), vocabulary.attributes()
    for name in ("max_iter", "tol", "verbose"):
        assert parameters[name].keys() == everyone, name
    for name in ("n_iter_", "converged_", "history_"):
        assert attributes[name].keys() == everyone, name
