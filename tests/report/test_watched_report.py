"""The report of a script that was watched: true, complete, and in both languages."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accepted import assert_accepted
from pydantic_core import from_json, to_json
from rich.console import Console

from diagnosed_runs import record_of
from trainlab import __version__
from trainlab.analysis.document import Document, Statements, Table
from trainlab.analysis.evidence import gather
from trainlab.analysis.learning import metric_curves
from trainlab.analysis.overview import data_of
from trainlab.cli.run_summary import Summary, evidence_json
from trainlab.export.frames import tables_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import LimitRow, ModelRow, OptimizerRow, TriedRow
from trainlab.report.contents import report_of
from trainlab.report.html import html_of
from trainlab.report.markdown import markdown_of
from trainlab.report.notebook import glance
from trainlab.words import LANGUAGES, Words
from watched_runs import WatchedRun, facts, loader, watched

FALSE = re.compile(
    r"adam\b|\bfp32\b|engine|auto\b|fresh weights|untrained|workload|batch 64, adam|初始权重|工作负载|引擎",
    re.IGNORECASE,
)
"""What our own training would have been by default; the script has none of it."""
VARY: dict[str, Any] = {"vary": {"batch-size": [16, 64]}, "seeds": (1, 2)}


def shown(run: RunFolder, lang: str) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        Summary(console, gather(run), Words(lang)).print_all(run, with_all=True)
    return captured.get()


def documents(run: RunFolder) -> list[Document]:
    data = data_of(gather(run))
    return [report_of(data, lang) for lang in LANGUAGES]


def tables(document: Document, section: str) -> list[Table]:
    (found,) = (one for one in document.sections if one.id == section)
    return [block for block in found.blocks if isinstance(block, Table)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A single run."""
    return WatchedRun().write(tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two settings, profiled."""
    return WatchedRun().write(tmp_path_factory.mktemp("varied") / "run", profile=True, **VARY)


def test_nothing_is_said_of_settings_that_the_script_does_not_have(
    one: RunFolder, varied: RunFolder
) -> None:
    for run in (one, varied):
        for document in documents(run):
            for text in (shown(run, document.lang), markdown_of(document)):
                told = text.replace(str(run.path), "").partition("\n## How to repeat it")[0]
                told = re.sub(r"\S*trainlab\S*", "", told)
                assert not FALSE.findall(told), FALSE.search(told)

    # It is called by its command and what was seen.
    seen = (
        "train: train.py --epochs 2, the CPU, 1 thread, batch 64, Adadelta lr 1, 149,418 parameters"
    )
    assert seen in shown(one, "en").splitlines()


def test_the_time_by_part_adds_up_in_every_setting(varied: RunFolder, tmp_path: Path) -> None:
    for document in documents(varied):
        (chart,) = (one for one in document.figures() if one.id == "script-whole")
        assert sum(row["share"] for row in chart.spec["data"]["values"]) == pytest.approx(2)
        (colours,) = set(re.findall(r'"range": (\[[^]]*#[^]]*\])', json.dumps(chart.spec)))
        assert len(set(json.loads(colours))) == len(json.loads(colours))
    # Many settings have a row each.
    sizes = [1, 2, 4, 8, 16]
    run = WatchedRun().write(tmp_path / "run", vary={"batch-size": sizes})
    time, _ = tables(documents(run)[0], "script")
    assert [row.entries[0].text for row in time.rows] == [f"batch-size={size}" for size in sizes]


def test_the_report_of_a_script_reads_as_accepted(tmp_path: Path) -> None:
    """What was seen has a row each, settings alike stand together; seeds were given as to a script."""

    def seen(trial: Any) -> Any:
        is_large = trial.cell == "batch-size=64"
        own = loader(order="in order", num_workers=1, pin_memory=True, drop_last=True)
        adam = OptimizerRow(name="Adam", lr=0.0002, code="fused", num_steps=40)
        net = {"name": "Net", "num_parameters": 12, "devices": ["cpu"], "dtypes": ["float32"]}
        return watched(
            loaders=[own if is_large else loader()],
            optimizers=[adam, adam],
            models=[ModelRow(**net, is_compiled=True)],
        )

    run = WatchedRun(seen=seen).write(tmp_path / "run", **VARY)
    for document in documents(run):
        made = markdown_of(document).replace(f"{tmp_path}/", "").replace(__version__, "VERSION")
        assert_accepted(f"script.{document.lang}.md", made)
        html_of(document)


def test_a_table_says_whose_time_it_is(one: RunFolder, tmp_path: Path) -> None:
    on_gpu = WatchedRun(resolved=lambda trial: facts(trial) | {"device": "cuda"})
    (time, _) = tables(documents(on_gpu.write(tmp_path / "gpu"))[0], "script")
    assert "times of the host" in time.note
    document = documents(WatchedRun().write(tmp_path / "run", processes=2))[0]
    for section in ("seen", "script"):
        assert "of the first of 2 processes" in tables(document, section)[0].note
        assert "of the first of" not in tables(documents(one)[0], section)[0].note


def test_of_a_loop_that_was_watched_from_inside_nothing_is_said_that_we_did_not_do(
    one: RunFolder,
) -> None:
    evidence = gather(one)
    script = evidence.study.script
    assert script is not None
    inside = script.model_copy(update={"from_inside": True})
    study = evidence.study.model_copy(update={"script": inside})
    text = markdown_of(report_of(data_of(replace(evidence, study=study)), "en"))
    assert "trainlab seeded nothing and started nothing" in text
    started = ("fresh process", "the start of its process")
    for untrue in ("No comparison was left open", "side by side", *started):
        assert untrue not in text


def test_json_and_exports_hold_what_was_seen_and_no_defaults(varied: RunFolder) -> None:
    told = from_json(to_json(evidence_json(gather(varied))))
    assert told["script"]["arguments"] == ["--epochs", "2"]
    (first, *_) = (trial for trial in told["trials"] if trial["cell"] == "batch-size=16")
    given = {"--epochs": "2", "--batch-size": "16", "--seed": str(first["seed"])}
    assert first["arguments"] == [word for pair in given.items() for word in pair]
    assert first["seen"]["optimizer"] == "Adadelta"
    assert sum(first["parts_s"].values()) == pytest.approx(first["wall_s"])
    assert first["overhead_s"] == pytest.approx(0.0055)
    exported = tables_of(gather(varied), varied)
    for name in ("results", "cost"):
        columns = set(exported[name].columns)
        assert {"script.batch-size", "seen.optimizer", "seen.batch_size"} <= columns, name
        assert not columns & {"optimizer", "precision", "engine", "epochs", "lr"}, name
    assert set(exported["cost"]["weights"]) == {""}
    assert set(exported["results"]["script.batch-size"]) == {16, 64}


def without_a_loader(trial: Any) -> dict[str, Any]:
    unseen = ("train_samples", "passes", "order", "workers", "pinned", "drop_last")
    return {name: fact for name, fact in facts(trial).items() if name not in unseen}


def test_without_a_loader_no_epoch_is_made_up_and_a_loss_is_called_the_mean_it_is(
    tmp_path: Path,
) -> None:
    """A metric that the script printed at its end is none."""
    run = WatchedRun(resolved=without_a_loader).write(tmp_path / "run", profile=True)
    said = " ".join(shown(run, "en").split())
    assert "after 40 updates" in said
    assert "s per epoch" not in said.partition("training step")[2]
    assert "an epoch of training took" not in said
    mean = {"en": "on average over the last 4 updates", "zh": "在最后 4 次更新中平均"}
    last = {"en": "after 40 updates", "zh": "训练 40 次更新后"}
    for metric, told, other in (("train/loss", mean, last), ("test/accuracy", last, mean)):
        run = WatchedRun(
            resolved=without_a_loader, final=lambda trial, name=metric: {name: 0.41}, epochs=1
        ).write(tmp_path / metric.replace("/", "-"))
        for lang in LANGUAGES:
            text = " ".join(shown(run, lang).split())
            assert told[lang] in text
            assert other[lang] not in text
    few = {"train/loss": "0.4100 in the last update (", "test/x": "0.4100 after 1 update ("}
    for name, when in few.items():
        run = WatchedRun(
            resolved=without_a_loader, final=lambda trial, name=name: {name: 0.41}, epochs=1
        ).write(tmp_path / name.replace("/", "-one-"))
        for record in run.trials():
            folder = run.trial(record.id)
            folder.write(record.model_copy(update={"steps_done": 1}))
        assert when in " ".join(shown(run, "en").split())


def with_steps(run: RunFolder, number: int) -> RunFolder:
    """The loss of update n is n."""
    for record in run.trials():
        curve = run.trial(record.id).curve_file
        line = json.loads(curve.read_text().splitlines()[0])
        usual = {"kind": "step", "epoch": 1, "time_s": line["time_s"]}
        numbers = range(1, number + 1)
        steps = [{**usual, "step": n, "samples": 64 * n, "train/loss": float(n)} for n in numbers]
        curve.write_text("".join(json.dumps(one) + "\n" for one in (*steps, line)))
    return run


def test_the_loss_of_a_script_is_drawn_over_updates_where_no_loader_tells_epochs(
    tmp_path: Path,
) -> None:
    made = WatchedRun(resolved=without_a_loader, epochs=1)
    run = with_steps(made.write(tmp_path / "run", **VARY), 300)
    curves = metric_curves(data_of(gather(run)), "train/loss")
    assert curves is not None
    assert curves.over_updates
    mine = [point for point in curves.points if point.cell == "batch-size=16"]
    assert [point.epoch for point in mine] == [3.0 * n for n in range(1, 101)]
    assert [point.mean for point in mine] == [3.0 * n - 1 for n in range(1, 101)]
    english, chinese = map(markdown_of, documents(run))
    assert "Training loss over updates" in english
    assert "A point is the mean over 3 recorded updates." in english
    assert "The table has the mean over the last tenth of the updates." in english
    assert "训练损失随更新次数的变化" in chinese

    # One pass over a loader is drawn in parts of an epoch.
    run = with_steps(WatchedRun(epochs=1).write(tmp_path / "one"), 20)
    curves = metric_curves(data_of(gather(run)), "train/loss")
    assert curves is not None
    assert not curves.over_updates
    assert [point.epoch for point in curves.points] == [n / 20 for n in range(1, 21)]
    text = markdown_of(documents(run)[0])
    assert "Training loss over epochs" in text
    assert "Points are recorded updates. The table has the mean over the last epoch." in text


def test_a_script_that_makes_no_update_is_asked_whether_it_trains(tmp_path: Path) -> None:
    unseen = {"num_steps": 0, "steps": [], "steps_ms": {}, "losses": []}
    nothing = watched(evaluation_s=0.0).model_copy(update={**unseen, "parts_s": {"startup": 2.0}})
    run = WatchedRun(seen=lambda trial: nothing).write(tmp_path / "run")
    text = " ".join(shown(run, "en").split())
    assert "and no update of a model was seen in it: does it train, with these arguments?" in text
    assert "training 0.0%" not in text


# The report of a diagnosis begins with what limits the script, and has one verdict on a ratio.

PROOF: dict[str, Any] = {"change": "same_batch", "is_remedy": False, "processes": 3}
PROVEN = TriedRow(**PROOF, verdict="confirmed", ratio=0.4, low=0.38, high=0.42)
DATA = LimitRow(limit="data", share=0.62, potential=0.62, verdict="confirmed", tried=[PROVEN])


@pytest.fixture
def diagnosed(tmp_path: Path) -> RunFolder:
    made = WatchedRun().write(tmp_path / "run", profile=True, **VARY)
    made.diagnosis.write(record_of(DATA))
    return made


def test_what_limits_the_script_is_the_title_and_the_answer(diagnosed: RunFolder) -> None:
    """Studies compare by other rules: beside the diagnosis that would be a second verdict."""
    data = data_of(gather(diagnosed))
    for document in documents(diagnosed):
        ids = [section.id for section in document.sections]
        assert ids[0] == "answer"
        assert "comparison" not in ids
    assert not {finding.kind for finding in data.findings} & {"cost", "undecided"}
    english = documents(diagnosed)[0]
    assert english.title == "What limits train.py"
    answer = markdown_of(english).partition("## Question and answer")[2].partition("\n## ")[0]
    assert "Waiting for data takes 62.0% of each update." in answer
    assert "Proof: with the same batch again" in answer
    _, blocks = glance(data, Words("en"))
    told = [item.text for block in blocks if isinstance(block, Statements) for item in block.items]
    assert told[0] == "Waiting for data takes 62.0% of each update."
    captions = [block.caption for block in blocks if isinstance(block, Table)]
    assert "Where the script's time goes" in captions


def test_the_terminal_names_the_parts_in_its_language_and_a_damaged_diagnosis_is_left_out(
    diagnosed: RunFolder,
) -> None:
    console = Console(width=90)
    with console.capture() as captured:
        Summary(console, gather(diagnosed), Words("zh")).print_diagnosis(diagnosed)
    text = captured.get()
    assert "反向" in text
    assert "trainlab report" in text
    for not_there in ("backward", "95% CI"):
        assert not_there not in text

    diagnosed.diagnosis.path.write_text("{")
    evidence = gather(diagnosed)
    assert evidence.diagnosis is None
    assert [damage.reason.partition(":")[0] for damage in evidence.damaged] == ["diagnosis.json"]
    assert report_of(data_of(evidence), "en").title == "train"
