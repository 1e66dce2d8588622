"""`trainlab probes`: what can be probed, as a user meets it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from command import Verb
from training import HomedSetup
from trainlab.errors import SpecError
from trainlab.instruments.probe_listing import check_selectors, probeable
from trainlab.spec.probe import probe_of


def test_layers_parameters_and_selectors_are_listed_by_the_names_of_the_layer_record(
    trainlab: Verb,
) -> None:
    shown = trainlab("probes", "mnist-cnn", "--batch-size", "4").stdout
    assert re.search(r"relu/2 +type=relu +4x64x24x24 +activation, .*grad_input, local_grad", shown)
    assert re.search(r"fc1.weight +128x9216 +weight, grad, update", shown)
    assert "trainlab run mnist-cnn --probe 'relu:grad_input:sq_sum@epoch'" in shown


def test_json_tells_what_a_program_needs(trainlab: Verb, tiny_file: Path) -> None:
    words = ["probes", f"{tiny_file}:tiny", "--json", "--model", "hidden=5"]
    rows = json.loads(trainlab(*words).stdout)
    assert [row["name"] for row in rows] == [
        *("Sequential", "0", "1", "2", "cross_entropy"),
        *("0.weight", "0.bias", "2.weight", "2.bias"),
    ]
    quantities = ["activation", "pre_activation", "grad_output", "grad_input", "local_grad"]
    relu = {"name": "1", "kind": "module", "type": "ReLU", "shape": [10, 5]}
    assert rows[2] == relu | {"quantities": quantities, "selectors": ["1", "type=ReLU"]}
    assert "grad_input" not in rows[1]["quantities"], "it takes the batch itself"


def test_selectors_can_be_checked_before_anything_runs(
    make_setup: Callable[..., HomedSetup],
) -> None:
    good = ("0:activation:mean", "1:local_grad:sum", "cross_entropy:activation:mean", "*:grad:norm")
    check_selectors(tuple(map(probe_of, good)), make_setup())
    for bad, hint in (
        ("cross_entrpy:activation:mean", "did you mean cross_entropy?"),
        ("3.wieght:grad:norm", "did you mean 3.weight"),
        ("type=Linaer:activation:mean", "did you mean type=Linear?"),
        ("0/2:activation:mean", "reaches no layer"),
    ):
        with pytest.raises(SpecError, match=re.escape(hint)):
            check_selectors((probe_of(bad),), make_setup())
    assert probeable(make_setup())
