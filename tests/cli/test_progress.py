"""What is shown while trials run, on a real terminal and off one."""

import io
import re
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from rich.cells import cell_len
from rich.console import Console

from command import Verb
from fabricate import made_study
from trainlab.cli import live_progress as heartbeat
from trainlab.cli.live_progress import StudyProgress
from trainlab.execute.attempt import EventWriter
from trainlab.execute.planned_run import start_run
from trainlab.lab.run_progress import duration_text, repeated
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event
from trainlab.record.trial_record import Failure
from trainlab.spec import CostSpec
from trainlab.words import LANGUAGES, Words

ENGLISH = Words("en")


def test_silence_lasts_until_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now)
    monkeypatch.setattr(heartbeat, "SILENCE_S", 1.0)
    silence = heartbeat.Silence()
    # In a long run one hundredth of the time may pass.
    for restarted, short, long in ((100.0, 100.9, 101.1), (2101.0, 2111.0, 2122.0)):
        now = restarted
        silence.restart()
        for now, is_too_long in ((short, False), (long, True)):  # noqa: B007  the clock reads it
            assert silence.is_too_long() is is_too_long


def on_terminal(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def play(progress: StudyProgress, run: RunFolder, events: Iterable[Event]) -> None:
    """What is shown while these events happen; the last of it is drawn whatever the time."""
    with progress.shown(), closing(EventWriter(run)) as writer:
        for event in events:
            writer.write(event)


def played(console: Console, path: Path, *events: Event, lang: str = "en") -> str:
    """The same of a study of two cells, with costs."""
    cost = CostSpec(processes=1, weights="untrained")
    study = made_study(vary={"batch_size": (1, 64)}, seeds=1, cost=cost, settings={"epochs": 2})
    run = start_run(study, path)
    play(StudyProgress(console, run, Words(lang)), run, events)
    return console.file.getvalue()


def learned(trial: str, epoch: int) -> Event:
    metrics = {"train/loss": 0.5 / epoch, "train/accuracy": 0.8, "test/accuracy": None}
    numbers = {"epoch": epoch, "num_epochs": 2, "share": epoch / 2, "time_s": 1.5 * epoch}
    return Event(kind="epoch", trials=(trial,), metrics=metrics, **numbers)


LEARN, COST = ("learn-batch_size=1-seed1",), ("cost-train-batch_size=1-process1",)
STUDY = (
    Event(kind="group_begins", trials=LEARN),
    learned(LEARN[0], 1),
    learned(LEARN[0], 2),
    Event(kind="group_ends", trials=LEARN),
    Event(kind="starting", groups=(COST,)),
    Event(kind="ready", groups=(COST,)),
    Event(kind="group_begins", trials=COST),
    Event(kind="group_ends", trials=COST),
    Event(kind="group_begins", trials=LEARN),  # started once more
)
LINES = {
    "en": r"""
1/\d+ batch_size=1 seed 1: train loss 0.2500, train accuracy 80.00%, test accuracy not finite, 3.0 s
\d/\d+ batch_size=1 training: timing steps
""",
    "zh": r"""
1/\d+ batch_size=1 种子 1：训练损失 0.2500，训练准确率 80.00%，测试准确率 不是有限数，3.0 秒
\d/\d+ batch_size=1 训练：计时
""",
}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_off_a_terminal_a_study_is_a_line_per_trial(lang: str, tmp_path: Path) -> None:
    shown = played(Console(file=io.StringIO(), width=200), tmp_path / "r", *STUDY, lang=lang)
    assert re.fullmatch(LINES[lang].lstrip(), shown), shown


def test_on_a_terminal_a_bar_says_what_runs_and_how_long_it_takes(tmp_path: Path) -> None:
    shown = played(on_terminal(120), tmp_path / "r", *STUDY[:-2])
    for part in ("batch_size=1 seed 1: train loss 0.2500", "timing steps", "s left"):
        assert part in shown


def test_a_terminal_that_goes_away_does_not_disturb_the_trials(tmp_path: Path) -> None:
    class Gone(io.StringIO):
        lost: ClassVar[list[str]] = []

        def write(self, text: str) -> int:
            self.lost.append(text)
            raise OSError("the terminal is gone")

    console = Console(file=Gone(), width=120, force_terminal=False)
    assert played(console, tmp_path / "r", *STUDY) == ""
    assert "batch_size=1 seed 1" in "".join(Gone.lost)


def test_a_trial_that_diverged_or_failed_has_its_line(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 9.0, 0.2)}, seeds=1, settings={"epochs": 2})
    run = start_run(study, tmp_path / "r")
    broken = Failure(kind="RuntimeError", message="out of luck\nand more", traceback="")
    ends = {
        "learn-lr=9-seed1": {"state": "diverged", "diverged_at_step": 1234},
        "learn-lr=0.2-seed1": {"state": "failed", "error": broken},
    }
    console, events = Console(file=io.StringIO(), width=200), list[Event]()
    progress = StudyProgress(console, run, ENGLISH)
    for trial_id, end in ends.items():
        home = run.trial(trial_id)
        home.write(home.read().model_copy(update=end))
        events += [Event(kind=f"group_{what}", trials=(trial_id,)) for what in ("begins", "ends")]
    play(progress, run, events)
    assert console.file.getvalue().splitlines() == [
        "1/3 lr=9 seed 1: diverged at update 1,234",
        "2/3 lr=0.2 seed 1: failed: RuntimeError: out of luck",
    ]


def test_seeds_that_are_added_are_shown_once_and_numbered_on(
    trainlab: Verb, tiny_file: Path
) -> None:
    words = ["run", f"{tiny_file}:tiny", "--vary", "hidden=8,9", "--seeds", "3", "--no-report"]
    words += ["--until-decided", "--max-seeds", "5", "--device", "cpu", "--no-tensorboard"]
    shown = trainlab(*words).stderr
    numbers = re.findall(r"^(\d+)/(\d+) hidden=\d seed \d: ", shown, re.MULTILINE)
    assert "going on to 5 seeds" in shown
    totals = ["6"] * 6 + ["8"] * 2 + ["10"] * 2
    assert numbers == [(str(number), total) for number, total in enumerate(totals, 1)]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_trials_side_by_side_are_named_where_they_fit_and_counted_else(
    lang: str, tmp_path: Path
) -> None:
    words = Words(lang)
    for levels in ((0.1, 0.01), (0.1, 0.01, 0.001, 0.0001, 0.00001)):
        number = len(levels)
        study = made_study(vary={"lr": levels}, seeds=1, settings={"epochs": 2})
        run, console = start_run(study, tmp_path / str(number)), on_terminal(80)
        trials, progress = run.study().trials, StudyProgress(console, run, words)
        cells = [run.trial(trial).read().cell for trial in trials]
        names = words.listed(f"{cell} {words('seed')} 1" for cell in cells)
        begun = (
            Event(kind="group_begins", trials=(trial,), num_side_by_side=number) for trial in trials
        )
        play(progress, run, [*begun, *(learned(trial, 1) for trial in trials)])
        ended = Event(kind="group_ends", trials=(trials[0],))
        play(progress, run, [learned(trials[0], 2), ended])
        frames = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", console.file.getvalue())
        lines = [line.rstrip() for line in re.split(r"[\r\n]+", frames)]
        bars = [line for line in lines if re.match("[\u2800-\u28ff]", line)]
        told = names if number == 2 else words("side_by_side", number=number)
        assert all(cell_len(line) <= 80 for line in bars)
        assert any(f"{number}/{number} {told}" in line for line in bars), bars
        # The line of a result names its own trial and number, whatever else runs.
        assert [line for line in lines if line.startswith(f"1/{number} {cells[0]} ")], lines


def test_durations_read_as_people_say_them() -> None:
    told = {3: "3 s", 200: "3:20 min", 3900: "1:05 h"}
    assert {s: duration_text(s, ENGLISH) for s in told} == told
    assert duration_text(200, Words("zh")) == "3 分 20 秒"


def test_an_interrupt_as_the_looking_begins_leaves_no_thread_that_prints_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, before = threading.Thread.start, threading.enumerate()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), repeated(lambda: None, 0.001):
        pass
    assert [one for one in threading.enumerate() if one not in before] == []
