"""Whatever is done to a run folder: what reads it raises nothing but our errors, writes nothing elsewhere
and prints nothing that steers a terminal."""

import re
import shutil
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from rich_run import rich_run, rich_study, row

from command import Done
from diagnosed_runs import diagnosed
from mutations import Mutations
from trainlab.cli import build
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.record.files import LineWriter
from trainlab.record.learning_record import FiredRecord, HistogramRecord, ProbeRecord, ProbesRecord
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.spec import probe

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
LONGEST_S = 60
"""Of a verb: what takes longer hangs."""

Read = Callable[..., Done]


@pytest.fixture
def read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Read:
    """Calls a verb; it ends well or with one line of ours."""
    monkeypatch.chdir(tmp_path)

    def call(what: str, *words: str) -> Done:
        signal.alarm(LONGEST_S)
        try:
            with pytest.raises(SystemExit) as ended:
                build(words)(words)
        finally:
            signal.alarm(0)
        printed = capsys.readouterr()
        assert ended.value.code in (0, 2), f"{what}\n{words}\n{printed.err}"
        assert not STEERING.search(printed.out + printed.err), f"{what}: {printed}"
        return Done(printed.out, printed.err)

    return call


def made_run(path: Path) -> RunFolder:
    """One of each record there is; half of the trials without digests, as in earlier versions."""
    study = rich_study(
        seeds=2,
        vary={"batch_size": [1, 16]},
        cost={"mode": "train", "processes": 1},
        probes=("relu:grad_input:sq_sum", "relu:activation:histogram@epoch"),
    )
    folder = rich_run(path, study)
    for number, trial in enumerate(folder.trials()):
        home = folder.trial(trial.id)
        if trial.kind == "learn":
            _write_probes(home)
            calls = [CallRow(**row(n, [i - 1]).model_dump()) for i, n in enumerate(("fc", "relu"))]
            home.network.write(NetworkRecord(batch_size=16, rows=calls))
        if number % 2:
            home.end(home.read())
    return folder


def _write_probes(home: TrialFolder) -> None:
    lines, rows = LineWriter(home.probes_file), []
    for spec in map(probe.probe_of, ("relu:grad_input:sq_sum", "relu:activation:histogram@epoch")):
        is_histogram = spec.reducer.startswith("histogram")
        for epoch in (1, 2, 3):
            record = ProbeRecord(
                probe=str(spec),
                layer="relu",
                quantity=spec.quantity,
                reducer=spec.reducer,
                every=str(spec.every),
                epoch=epoch,
                step=10 * epoch,
                num_steps=10,
                fired=10,
                count=40,
                value=None if is_histogram else 0.5 / epoch,
                histogram=HistogramRecord(
                    log=True, low=1e-3, high=1.0, counts=[1, 2, 3], below=0, above=0
                )
                if is_histogram
                else None,
            )
            lines.write(record.line())
        rows.append(
            FiredRecord(
                probe=str(spec),
                layer="relu",
                type="ReLU",
                kind="module",
                place=1,
                fired=30,
                first_step=1,
                last_step=30,
                shapes=[[4, 8]],
            )
        )
    lines.close()
    home.probes.write(ProbesRecord(rows=rows))


def outside_of(folder: Path) -> list[str]:
    """All that lies beside a run folder and the whole copies of it."""
    inner = [path for path in folder.parent.iterdir() if path.name not in ("r", "whole", "other")]
    return sorted(str(path) for one in inner for path in (one, *one.rglob("*")))


SHOWN = (("show", "r", "--all"), ("compare", "r", "other"), ("show", "r", "--json"))
"""In turn, beside a report."""


def fuzz(
    read: Read,
    folder: Path,
    num_mutations: int,
    seed: int,
    report_every: int,
    draw_every: int,
    names: str = "*.json*",
) -> None:
    """`report_every` and `draw_every`: how often a report is written, and how often with the charts of
    Markdown and PDF, which take seconds; `names`: the files that are damaged."""
    shutil.copytree(folder, folder.with_name("other"))
    outside = folder.with_name("outside")
    outside.mkdir()
    (outside / "secret").write_text("not a record")
    before = outside_of(folder)
    for number, what in enumerate(
        islice(Mutations(folder, outside, seed, names), num_mutations), 1
    ):
        read(what, *SHOWN[number % len(SHOWN)])
        if number % report_every == 0:
            formats = "html,md,pdf" if number % draw_every == 0 else "html"
            read(what, "report", "r", "--format", formats)
        assert outside_of(folder) == before, what


def test_damaged_runs_are_shown_or_refused_in_a_line(read: Read, tmp_path: Path) -> None:
    made_run(tmp_path / "r")
    fuzz(read, tmp_path / "r", 60, seed=1, report_every=15, draw_every=1000)


OF_SCRIPTS = ("watched.json", "diagnosis.json", "*.json*")


@pytest.mark.slow
@pytest.mark.parametrize("names", OF_SCRIPTS)
def test_damaged_diagnoses_are_shown_or_refused_in_a_line(
    names: str, read: Read, tmp_path: Path
) -> None:
    diagnosed(tmp_path / "r")
    fuzz(read, tmp_path / "r", 20, seed=1, report_every=10, draw_every=1000, names=names)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("names", OF_SCRIPTS)
def test_thousands_of_damaged_diagnoses_are_shown_or_refused_in_a_line(
    names: str, seed: int, read: Read, tmp_path: Path
) -> None:
    diagnosed(tmp_path / "r")
    fuzz(read, tmp_path / "r", 300, seed=seed, report_every=5, draw_every=100, names=names)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_thousand_damaged_runs_are_shown_or_refused_in_a_line(
    seed: int, read: Read, tmp_path: Path
) -> None:
    made_run(tmp_path / "r")
    fuzz(read, tmp_path / "r", 1000, seed=seed, report_every=1, draw_every=100)
