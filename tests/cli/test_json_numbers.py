"""What --json prints is JSON, whatever the numbers."""

import json
import math

import pytest

from trainlab.cli.output import print_json


def test_numbers_that_json_cannot_hold_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.inf, "b": [math.nan, 1.5, (-math.inf, "x")], "c": {"d": 2, "e": None}})
    assert json.loads(capsys.readouterr().out) == {
        "a": None,
        "b": [None, 1.5, [None, "x"]],
        "c": {"d": 2, "e": None},
    }
