"""Learn trials trained together: what is packed, what falls back, what is recorded."""

from collections import Counter
from pathlib import Path

import pytest

from asking import curves, study_of
from trainlab.execute.executors import executor_for, packed
from trainlab.execute.planned_run import start_run
from trainlab.plan import plan
from trainlab.record.run_folder import RunFolder
from trainlab.train.loader import Loader


def ran(study_file: Path, name: str, out: Path, **given: object) -> RunFolder:
    vary = given.pop("vary", {})
    asked = {"device": "cpu", "epochs": 2, "engine": "lanes", **given}
    study = study_of(f"{study_file}:{name}", asked, vary=vary, seeds=3, tensorboard=False)  # type: ignore[arg-type]
    run = start_run(study, out)
    executor_for("local", Loader()).run(run, plan(study), lambda: False)
    return run


def test_lanes_write_the_records_that_eager_writes(tiny_file: Path, tmp_path: Path) -> None:
    vary = {"lr": [0.01, 0.1], "batch_size": [8, 16]}
    together = ran(tiny_file, "tiny", tmp_path / "a", vary=vary)
    alone = ran(tiny_file, "tiny", tmp_path / "b", vary=vary, engine="eager")
    for one, other in zip(together.trials(), alone.trials(), strict=True):
        assert (one.id, one.state, one.steps_done) == (other.id, "done", other.steps_done)
        assert (one.resolved["engine"], other.resolved["engine"]) == ("lanes", "eager")
        assert one.resolved["trials_together"] == 6
        for a, b in zip(curves(together)[one.id], curves(alone)[one.id], strict=True):
            assert a.pop("kind") == b.pop("kind")
            assert a == pytest.approx(b, rel=1e-3, abs=1e-5)


def test_trials_of_one_program_are_packed_and_others_apart(tiny_file: Path) -> None:
    vary = {"lr": [0.01, 0.1], "batch_size": [8, 16], "optimizer": ["adam", "sgd"]}
    study, alone = (
        study_of(f"{tiny_file}:tiny", {"device": "cpu", "engine": engine}, vary=vary, seeds=2)
        for engine in ("lanes", "eager")
    )
    groups = packed(plan(study))
    sizes = Counter(len(group.trials) for group in groups)
    assert sizes == {8: 2}
    assert all(len({t.settings.batch_size for t in group.trials}) == 1 for group in groups)
    assert {t.id for g in groups for t in g.trials} == {t.id for g in plan(study) for t in g.trials}
    assert packed(plan(alone)) == list(plan(alone))
