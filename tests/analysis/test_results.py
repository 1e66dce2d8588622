"""Tables: tidy rows with units, and trials that did not end well seen but never counted."""

from pathlib import Path

import pandas as pd
import pytest

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import findings
from trainlab.analysis.results import epoch_table, results_table, trial_table, write_results
from trainlab.lab import Run
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two cells, two seeds and cost; seed 2 of the second cell diverged, its cost never ran."""
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=2, cost=CostSpec(processes=1))
    states = {"learn-lr=0.01-seed2": "diverged", "cost-train-lr=0.01-process1": "pending"}
    made = Fabricated(state=lambda t: states.get(t.id, "done"), step_ms=lambda t, _: 2.0)
    return made.write(tmp_path / "r", study)


def test_a_row_per_trial_has_its_metrics_costs_and_settings_with_units(folder: RunFolder) -> None:
    table = results_table(gather(folder)).set_index("trial")
    trained = {"train/loss": 0.3, "test/loss": 0.4, "test/accuracy [share]": 0.9}
    trained |= {"total_s": 2.0, "train_s_per_epoch": 0.75}
    timed = {"step_ms": 2.0, "sample_us": 31.25, "epoch_s": 0.03, "samples_per_s": 32000.0}
    measured = [*trained, *timed, "peak_mib"]
    for trial, values in (
        ("learn-lr=0.1-seed1", trained),
        ("cost-train-lr=0.1-process1", timed),
        ("cost-train-lr=0.1-layers", {"peak_mib": 64.0}),
    ):
        assert table.loc[trial, measured].dropna().to_dict() == values
        assert table.loc[trial, ["lr", "batch_size [samples]"]].to_list() == [0.1, 64]
    # A trial that did not end well is seen and has no values.
    assert table.loc["learn-lr=0.01-seed2", "state"] == "diverged"
    assert table.loc["learn-lr=0.01-seed2", measured].isna().all()
    wide = trial_table(gather(folder)).set_index("trial")
    assert len(wide) == len(folder.study().trials)
    assert wide.loc["cost-train-lr=0.01-process1", "state"] == "pending"
    assert wide[wide.state != "done"][["test/accuracy", "total_s", "step_ms"]].isna().all().all()


def test_a_cell_measured_twice_and_trained_weights_have_their_own_rows(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=1, cost=CostSpec(weights="both"))

    def step_ms(trial: object, process: int) -> float:
        return process + 10 * trial.again + 100 * bool(trial.weights_of)  # type: ignore[attr-defined]

    table = trial_table(gather(Fabricated(step_ms=step_ms).write(tmp_path / "r", study)))
    steps = table[table["step_ms"].notna() & (table.cell == "lr=0.1")]
    grouped = steps.groupby(["again", "weights"])["step_ms"].apply(sorted)
    assert {key: list(values) for key, values in grouped.items()} == {
        (False, "untrained"): pytest.approx([1, 2, 3]),
        (False, "trained"): pytest.approx([101, 102, 103]),
        (True, "untrained"): pytest.approx([11, 12, 13]),
    }


def test_files_hold_the_tables_and_equal_records_give_equal_bytes(folder: RunFolder) -> None:
    def written() -> list[bytes]:
        write_results(folder, gather(folder))
        files = (folder.results_csv, folder.results_parquet, folder.epochs_csv)
        return [file.read_bytes() for file in files]

    assert written() == written()
    table = results_table(gather(folder))
    for read in (pd.read_csv(folder.results_csv), pd.read_parquet(folder.results_parquet)):
        assert list(read.columns) == list(table.columns)
        losses = (one["test/loss"].to_numpy(float, na_value=0.0).tolist() for one in (read, table))
        assert next(losses) == next(losses)
    # One shape, wherever it is written.
    exported, *_ = Run(folder.path).export("csv").paths
    assert exported.read_bytes() == folder.results_csv.read_bytes()
    epochs = epoch_table(gather(folder))
    assert len(pd.read_csv(folder.epochs_csv)) == len(epochs) == 4 * 2
    assert list(epochs["epoch"][:2]) == [1, 2]
    assert {"cell", "lr", "seed", "state", "test/accuracy", "train_s", "time_s"} <= set(epochs)
    assert set(epochs.kind) == {"learn"}


def test_levels_read_as_users_write_them(tmp_path: Path) -> None:
    vary = {"zero_grad": (False,), "lr": (1e-4,), "hidden": (4,), "device": ("cuda",)}
    study = made_study(design="one-at-a-time", vary=vary, seeds=1)
    made = Fabricated(resolved=lambda t: {"device_name": "NVIDIA H200"})
    table = trial_table(gather(made.write(tmp_path / "r", study))).set_index("cell")
    assert table.loc["base", ["zero_grad", "lr", "model.hidden"]].to_list() == ["true", "0.001", ""]
    for cell, factor, level in (
        ("zero_grad=false", "zero_grad", "false"),
        ("lr=0.0001", "lr", "0.0001"),
        ("hidden=4", "model.hidden", "4"),
        ("device=cuda", "device", "cuda"),
    ):
        assert table.loc[cell, factor] == level
    assert set(table["device_name"]) == {"NVIDIA H200"}


def test_a_finished_run_is_read_once_and_an_unfinished_one_every_time(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=1)
    done = Run(Fabricated().write(tmp_path / "a", study).path)
    assert done.evidence() is done.evidence()
    waiting = Run(Fabricated(state=lambda t: "pending").write(tmp_path / "b", study).path)
    assert [one.kind for one in findings(waiting.evidence())] == ["unfinished"]
    # Of one of which nothing has ended the trials are there without values.
    write_results(waiting, waiting.evidence())
    for read in (pd.read_csv(waiting.results_csv), pd.read_parquet(waiting.results_parquet)):
        assert read["state"].tolist() == ["pending"] * 2
    assert not waiting.epochs_csv.exists()
    assert waiting.results()["state"].eq("pending").all()
    home = waiting.trial("learn-lr=0.1-seed1")
    home.write(home.read().model_copy(update={"state": "failed"}))
    assert set(waiting.results()["state"]) == {"failed", "pending"}


def test_a_level_that_a_spreadsheet_would_run_is_quoted(tmp_path: Path) -> None:
    study = made_study(vary={"hidden": ("@SUM(A1)", "=1+1", "-3", "x")}, seeds=1)
    folder = Fabricated().write(tmp_path / "r", study)
    write_results(folder, gather(folder))
    levels = set(pd.read_csv(folder.results_csv, dtype=str)["model.hidden"])
    assert levels == {"'@SUM(A1)", "'=1+1", "-3", "x"}
