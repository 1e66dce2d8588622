"""The verbs about studies, on small or made-up runs: what they print, refuse and leave behind."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from command import Verb
from fabricate import ENVIRONMENT, Fabricated, made_study
from torchless import Torchless
from trainlab.plan import Trial
from trainlab.spec import CostSpec, Question
from trainlab.studies import study_names
from trainlab.workloads.reference import BUILTIN

LRS = {"lr": (0.1, 0.2)}


def test_a_dry_run_shows_the_plan_and_runs_nothing(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    words = ["--vary", "lr=0.1,0.2", "--seeds", "2", "--profile", "--processes", "2"]
    before = sorted(tmp_path.iterdir())
    shown = trainlab("run", f"{tiny_file}:tiny", *words, "--dry-run").stdout
    for told in ("2 settings: lr=0.1, lr=0.2", "4 learn trials", "12 timed and 8 profiled"):
        assert told in shown
    single = ["--vary", "lr=0.1", "--seeds", "1", "--dry-run"]
    assert "1 learn trial (1 seed)" in trainlab("run", f"{tiny_file}:tiny", *single).stdout
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "__pycache__"] == before


def test_a_study_trains_and_says_what_follows_in_the_language_asked(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    words = ["run", f"{tiny_file}:tiny", "--lr", "0.01,0.1", "--seeds", "2", "--out", "r"]
    done = trainlab(*words, "--no-tensorboard", "--lang", "zh")
    assert "4/4 lr=" in done.stderr
    for told in (
        "测试准确率 [95% 置信区间]",
        "运行文件夹：r",
        "的测试准确率",
        "全部发现：trainlab show r --all",
    ):
        assert told in done.stdout
    assert (tmp_path / "r/results.csv").is_file()
    assert "Verdicts are about" not in trainlab("show", "r").stdout
    shown = " ".join(trainlab("show", "r", "--all").stdout.split())
    assert "Verdicts are about this test set." in shown


def test_a_spent_budget_leaves_the_rest_pending_and_says_so(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    words = ["run", f"{tiny_file}:tiny", "--lr", "0.01,0.1", "--seeds", "2", "--budget", "0.001s"]
    shown = trainlab(*words, "--out", "r").stdout
    records = [json.loads(p.read_text()) for p in (tmp_path / "r/trials").glob("*/trial.json")]
    pending = sum(record["state"] == "pending" for record in records)
    assert pending >= 3
    told = f"Only {4 - pending} of 4 trials ended well" if pending < 4 else "No trial finished"
    assert f"{told} ({pending} not run)" in shown


def test_the_built_in_studies_are_listed_and_printed_to_start_from(trainlab: Verb) -> None:
    shown = trainlab("studies").stdout
    for told in (*study_names(), "batch_size 1, 16, 64", "optimizer=sgd lr=0.001"):
        assert told in shown
    for name in study_names():
        assert tomllib.loads(trainlab("studies", name).stdout)["name"] == name
    schema = json.loads(trainlab("studies", "--schema").stdout)
    assert set(schema["properties"]) == set(Question.model_fields)


def state(trial: Trial) -> str:
    return {1: "done", 2: "failed", 3: "interrupted", 4: "running"}.get(trial.seed, "pending")


def test_show_tells_of_an_unfinished_run_without_importing_torch(
    torchless: Torchless, tmp_path: Path
) -> None:
    Fabricated(state=state).write(tmp_path / "r", made_study(vary=LRS, seeds=8))
    done = torchless.ask(["show", "r"], tmp_path)
    assert (done.code, done.imported_torch) == (0, False)
    shown = " ".join((done.stdout + torchless.ask(["show", "r", "--all"], tmp_path).stdout).split())
    for told in (
        "Only 2 of 16 trials ended well (2 failed, 2 interrupted, 2 begun and not ended, 8 not run)",
        "failed: RuntimeError: it broke",
        *("1 of 3", "Not shown: 3 more."),
        "learn-lr=0.1-seed4: begun and not ended: 2 of 2 epochs are recorded",
    ):
        assert told in shown, shown
    chinese = torchless.ask(["show", "r", "--lang", "zh"], tmp_path).stdout
    assert "2 次已开始但未结束，8 次未运行" in "".join(chinese.split("\n"))


def test_show_prints_one_object_of_one_run_or_of_several(trainlab: Verb, tmp_path: Path) -> None:
    for name, seeds in (("a", (1, 2, 3)), ("b", (4, 5, 6))):
        Fabricated().write(tmp_path / name, made_study(vary=LRS, seeds=seeds, name=name))
    one = json.loads(trainlab("show", "a", "--json").stdout)
    assert len(one["trials"]) == 6
    assert one["findings"][0]["sentence"].startswith("lr 0.1 → 0.2: ")
    both = json.loads(trainlab("show", "a", "b", "--json").stdout)
    assert len(both["trials"]) == 12
    assert both["findings"][0]["n"] == 6


def test_compare_names_what_differs_and_lists_cells_only_one_run_has(
    trainlab: Verb, tmp_path: Path
) -> None:
    packages = {**ENVIRONMENT.packages, "torch": "2.10.0"}
    other = ENVIRONMENT.model_copy(update={"packages": packages})
    for name, ms, machine, last in (("a", 1, ENVIRONMENT, 0.2), ("b", 2, other, 0.3)):
        study = made_study(vary={"lr": (0.1, last)}, cost=CostSpec(processes=3))
        made = Fabricated(step_ms=lambda t, p, ms=ms: ms + 0.001 * p, environment=machine)
        made.write(tmp_path / name, study)
    shown = trainlab("compare", "a", "b").stdout
    for told in (
        *("Only in A: lr=0.2", "Only in B: lr=0.3", "packages.torch", "2.9.0+cpu", "2.10.0"),
        *("training µs/sample", "2.00 times", "different", "90.00%"),
    ):
        assert told in shown
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    again = trainlab("compare", "a", "copy").stdout
    assert "Nothing else that was recorded differs" in again
    Fabricated().write(tmp_path / "c", made_study(vary={"lr": (0.4,)}))
    told = trainlab("compare", "a", "c", code=2).stderr
    assert told == "trainlab: compare: no setting in common: lr=0.1, lr=0.2 against lr=0.4\n"


def test_reproduce_lays_published_figures_beside_a_run(trainlab: Verb, tmp_path: Path) -> None:
    final = {"train/loss": 0.488, "test/loss": 0.423, "test/accuracy": 0.84}

    def near(trial: Trial) -> dict[str, float]:
        return {name: value * (1 + 0.1 * (trial.seed - 2)) for name, value in final.items()}

    study = made_study("fashion-mlp", BUILTIN["fashion-mlp"].defaults)
    Fabricated(final=near).write(tmp_path / "a", study)
    shown = trainlab("reproduce", "fashion-lab", "--run", "a").stdout
    assert "15 of 15 published figures are inside; by chance 0.8 would be outside" in shown
    assert "3 of 3 published curves agree with ours" in shown
    assert "not compared" not in shown
    Fabricated(final=lambda t: {"test/loss": 9 + t.seed}).write(tmp_path / "b", study)
    shown = trainlab("reproduce", "fashion-lab", "--run", "b", code=1).stdout
    assert "0 of 5 published figures are inside" in shown
    assert "base, test/loss: not reproduced: the published curve lies 10.6 standard" in shown
    longer = made_study("fashion-mlp", BUILTIN["fashion-mlp"].defaults, settings={"epochs": 3})
    wider = made_study("fashion-mlp", vary={"hidden": (3, 4)})
    differs = (
        "base has epochs 3, published with 5; make a new run with `trainlab reproduce fashion-lab`"
    )
    about = "is about mnist-cnn, fashion-lab about fashion-mlp; name a run of fashion-lab"
    for run, other, told in (
        ("c", made_study("mnist-cnn"), f"c: {about}"),
        ("d", longer, f"d: nothing in it was published for fashion-lab: {differs}"),
        ("e", wider, "hidden=3, hidden=4: not among "),
    ):
        Fabricated().write(tmp_path / run, other)
        assert told in trainlab("reproduce", "fashion-lab", "--run", run, code=2).stderr


@pytest.mark.parametrize("verb", ["show", "status"])
def test_without_a_run_those_that_there_are_are_listed_newest_first(
    verb: str, trainlab: Verb, tmp_path: Path
) -> None:
    told = trainlab(verb, code=2).stderr
    assert told.startswith("trainlab: runs: has no run; name a run folder, or make one with")
    assert "没有运行" in trainlab(verb, "--lang", "zh", code=2).stderr
    for number, name in enumerate(("older", "newer")):
        made = Fabricated(state=(lambda trial: "done") if number else state)
        run = made.write(tmp_path / "runs" / name, made_study(seeds=2))
        created = f"2026-01-0{number + 1}T10:00:00+00:00"
        run.write_study(run.study().model_copy(update={"created": created}))
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "study.json").write_text("{")
    lines = [line.split() for line in trainlab(verb).stdout.splitlines()]
    assert [Path(words[0]).name for words in lines] == ["damaged", "newer", "older"]
    assert lines[1][1:] == ["finished", "2026-01-02", "10:00", "2", "of", "2", "trials", "finished"]
    assert lines[2][-7:] == [*("1", "of", "2", "trials", "finished,", "1", "failed")]
    assert "失败 1 次" in trainlab(verb, "--lang", "zh").stdout
    # Where there is no room beside it, a path stands alone: broken, it could not be copied.
    paths = trainlab(verb, COLUMNS="40").stdout.splitlines()[::2]
    assert paths == ["runs/damaged", "runs/newer", "runs/older"]
    listed = json.loads(trainlab(verb, "--lang", "en", "--json").stdout)
    assert [run["state"] for run in listed] == ["damaged", "finished", "left"]


def test_a_lab_can_measure_less_than_its_file_says(trainlab: Verb) -> None:
    both = {"train", "inference"}
    for options, modes in (("--no-profile", set()), ("--mode train", {"train"}), ("", both)):
        words = ["run", "mnist-lab", "--dry-run", "--json", *options.split()]
        planned = json.loads(trainlab(*words).stdout)
        trials = [trial.split("-") for group in planned["groups"] for trial in group]
        assert {mode for kind, mode, *_ in trials if kind == "cost"} == modes
