"""Times of two machines are never compared within a run."""

from pathlib import Path

from fabricate import ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.spec import CostSpec


def test_cost_that_another_machine_measured_is_left_out_and_named(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 64)}, seeds=1, cost=CostSpec(processes=3))
    run = Fabricated().write(tmp_path / "r", study)
    other = run.write_environment(ENVIRONMENT.model_copy(update={"host": "spare"}))
    moved = "cost-train-batch_size=1-process3"
    trial = run.trial(moved).read()
    assert gather(run).damaged == ()
    run.trial(moved).write(trial.model_copy(update={"environment": other}))
    evidence = gather(run)
    (left_out,) = evidence.damaged
    assert left_out.trial == moved
    assert left_out.reason == f"{moved}: measured on spare, most others on {ENVIRONMENT.host}"
    assert moved not in {one.id for one in evidence.trials}
    assert {len(m.processes) for m in evidence.measured_in("train")} == {2, 3}
