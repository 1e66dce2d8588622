from trainlab.spec.base import did_you_mean, name_hint, nearest

SETTINGS = ("lr", "batch_size", "epochs")
OTHERS = {"learning_rate": "lr", "bs": "batch_size", "gpu": "cuda"}


def test_a_misspelt_name_is_found_whatever_its_case_and_dashes() -> None:
    assert nearest("Batch-Sise", SETTINGS) == "batch_size"
    assert nearest("zzz", SETTINGS) is None


def test_a_name_that_others_use_is_known_and_may_be_misspelt_a_little() -> None:
    assert nearest("learning-rate", SETTINGS, OTHERS) == "lr"
    assert nearest("learning_rat", SETTINGS, OTHERS) == "lr"
    assert nearest("tpu", ("auto", "cpu"), OTHERS) == "cpu"


def test_a_hint_says_something_else_where_nothing_is_alike() -> None:
    assert did_you_mean("epoch", SETTINGS) == "; did you mean epochs?"
    assert did_you_mean("zzz", SETTINGS) == ""
    assert name_hint("zzz", SETTINGS, "known: lr") == "known: lr"
