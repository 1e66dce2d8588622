"""Energy in findings, tables and the answer, from made-up records."""

from pathlib import Path

import pytest
from analysed import EN

from fabricate import Fabricated, made_study
from trainlab.analysis.answer import answer
from trainlab.analysis.cost import cost_table, step_table
from trainlab.analysis.evidence import Evidence, gather
from trainlab.analysis.overview import findings
from trainlab.analysis.results import results_table
from trainlab.plan import Trial
from trainlab.record.cost_record import EnergyRecord
from trainlab.spec import CostSpec
from trainlab.words import Words
from watched_runs import WatchedRun, watched

ZH = Words("zh")
STUDY = made_study(vary={"batch_size": (16, 64)}, learn=False, cost=CostSpec(processes=3))


def counted(path: Path, *, joules: dict[int, float], but: str = "none") -> Evidence:
    """Joules of 100 steps by batch size, a little more in later processes; `but` names a cell without."""
    folder = Fabricated().write(path / "run", STUDY)
    for trial in folder.trials():
        if trial.watch == "steps" and trial.cell != but:
            home, number = folder.trial(trial.id).cost, int(trial.id[-1])
            record = home.read()
            taken = joules[record.batch_size] * (1 + 0.002 * number + 0.001 * trial.again)
            energy = EnergyRecord(num_steps=100, joules=taken, wall_s=1.0)
            home.write(record.model_copy(update={"energy": energy}))
    return gather(folder)


def test_settings_that_take_different_energy_are_told_apart_in_the_answer(tmp_path: Path) -> None:
    run = counted(tmp_path, joules={16: 32.0, 64: 64.0})
    found = findings(run)
    (one,) = (finding for finding in found if finding.kind == "energy" and finding.mode == "train")
    # 32 J of 100 steps are 320 mJ a step: 20 mJ a sample, of 16; and half of that of 64.
    assert one.verdict == "different"
    assert one.numbers["ratio"] == pytest.approx(0.5, rel=0.01)
    assert one.sentence(EN).startswith(
        "batch_size 16 → 64: a training step takes 20.1 → 10.0 mJ of the GPU per sample, 0.500 times"
    )
    told = [sentence.text for sentence in answer(run, found, EN).sentences]
    assert [text for text in told if text.startswith("Batch 64 takes 50.0% [95% CI")]
    told = [sentence.text for sentence in answer(run, found, ZH).sentences]
    assert [text for text in told if "GPU 能耗" in text]
    headings = [column.heading for column in cost_table(run, EN).columns]
    assert headings[-2:] == ["mJ per sample", "J per epoch"]
    rows = [row.entries for row in step_table("own", run.measured[0], EN).rows]
    energy = {entries[0].text: entries[1].value for entries in rows}
    assert energy["mJ per sample"] == pytest.approx(20.1, rel=0.01)
    assert energy["J per epoch"] == pytest.approx(20.1 * 0.96, rel=0.01)
    table = results_table(run).set_index("trial")
    first = table.loc["cost-train-batch_size=16-process1", ["sample_mj", "epoch_j"]]
    assert first.to_list() == pytest.approx([20.04, 20.04 * 0.96])


def test_energy_that_was_not_counted_or_does_not_differ_is_not_told(tmp_path: Path) -> None:
    nothing = gather(Fabricated().write(tmp_path / "bare", STUDY))
    assert not {"mJ per sample", "J per epoch"} & {
        c.heading for c in cost_table(nothing, EN).columns
    }
    assert "sample_mj" not in results_table(nothing)
    for name, run in {
        "bare": nothing,
        "same": counted(tmp_path / "same", joules={16: 16.0, 64: 64.0}),
        "one": counted(tmp_path / "one", joules={16: 16.0, 64: 32.0}, but="batch_size=16"),
    }.items():
        assert [f for f in findings(run) if f.kind == "energy"] == [], name


def test_a_watched_run_tells_energy_per_epoch_and_per_sample(tmp_path: Path) -> None:
    marks = [(0, 0.0, 0.0), (1280, 2.0, 640.0), (2496, 4.0, 1248.0)]

    def seen(trial: Trial) -> object:
        own = [(samples, s, joules * (1 + 0.01 * trial.seed)) for samples, s, joules in marks]
        return watched(energy=own)

    run = gather(WatchedRun(seen=seen).write(tmp_path / "run", seeds=(1, 2, 3)))  # type: ignore[arg-type]
    (one,) = (finding for finding in findings(run) if finding.kind == "script_energy")
    assert one.sentence(EN) == (
        "The GPU took 636 J per epoch and 510 mJ per sample, 318 W on average."
    )
    assert "平均功率 318 W" in one.sentence(ZH)
    table = results_table(run)
    assert table["sample_mj"].to_list() == pytest.approx([505.0, 510.0, 515.0])
