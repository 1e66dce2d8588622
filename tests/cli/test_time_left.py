"""Time left, from events whose times are made up."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fabricate import made_study
from trainlab.execute.planned_run import add_groups, start_run
from trainlab.lab.run_progress import RunProgress
from trainlab.plan import bench_of
from trainlab.spec import CostSpec, Study


class Told:
    """A run of a study, told event by event by a clock that only moves when told."""

    def __init__(self, path: Path, study: Study) -> None:
        self.run, self.now_s = start_run(study, path), 1e9
        self.progress = RunProgress(self.run)
        self.ids = list(self.run.study().trials)
        self.run.events_folder.mkdir()

    def tell(self, kind: str, *trials: str, after_s: float = 0.0, **fields: Any) -> None:
        """After so many seconds."""
        self.now_s += after_s
        at = datetime.fromtimestamp(self.now_s, UTC).isoformat()
        line = {"kind": kind, "trials": trials, "at": at, **fields}
        with (self.run.events_folder / "here.jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")

    def ran(self, *trials: str, for_s: float) -> None:
        self.tell("group_begins", *trials)
        self.tell("group_ends", *trials, after_s=for_s)

    def left_s(self, after_s: float = 0.0) -> float | None:
        self.now_s += after_s
        for _ in self.progress.new_events():
            pass
        self.progress.now_s = self.now_s
        return self.progress.left_s()


@pytest.fixture
def four(tmp_path: Path) -> Told:
    """Two cells, two seeds."""
    return Told(tmp_path / "r", made_study(vary={"batch_size": (1, 64)}, seeds=2))


def test_the_trial_that_runs_says_how_long_all_may_take(four: Told) -> None:
    four.tell("group_begins", four.ids[0])
    assert four.left_s() is None
    assert (four.progress.num_begun, len(four.progress.trials)) == (1, 4)
    assert four.progress.share_done() == 0
    four.tell("progress", four.ids[0], share=0.5, after_s=5)
    assert four.left_s() == 35
    assert four.progress.share_done() == pytest.approx(5 / 40)


def test_a_start_says_nothing_about_the_speed(four: Told) -> None:
    four.tell("group_begins", four.ids[0])
    four.tell("progress", four.ids[0], share=0.05, after_s=100)
    assert four.left_s() is None
    four.tell("progress", four.ids[0], share=0.5, after_s=9)
    assert four.left_s() == pytest.approx(10 + 3 * 119)


def test_a_trial_should_take_as_long_as_the_most_similar_did(four: Told) -> None:
    four.ran(four.ids[0], for_s=10)
    # Nothing else is known: all should take as long.
    assert four.left_s() == 30
    four.ran(four.ids[1], for_s=2)
    # Each cell once more, each as long as its like.
    assert four.left_s() == 12
    assert four.progress.share_done() == pytest.approx(0.5)


def test_time_left_counts_down_by_itself_or_by_the_speed_of_what_runs(four: Told) -> None:
    four.ran(four.ids[0], for_s=10)
    four.tell("group_begins", four.ids[1])
    assert [four.left_s(after_s) for after_s in (0, 4)] == [30, 26]
    four.tell("progress", four.ids[1], share=0.25)
    assert four.left_s() == pytest.approx(12 + 20)
    assert four.left_s(after_s=100) is not None


def test_trials_trained_together_take_their_share_of_the_time(four: Told) -> None:
    four.tell("group_begins", *four.ids[:2])
    four.tell("progress", four.ids[0], share=0.5, after_s=5)
    assert four.left_s() == 5 + 2 * 5


def test_trials_side_by_side_share_the_time_that_is_left(four: Told) -> None:
    for one in four.ids[:2]:
        four.tell("group_begins", one, num_side_by_side=2)
    four.tell("progress", four.ids[0], share=0.5, after_s=5)
    four.tell("progress", four.ids[1], share=0.25)
    # 5 s and 15 s of those that run, 15 s each of two more, two at a time.
    assert four.left_s() == pytest.approx((5 + 15 + 2 * 15) / 2)


def test_at_the_end_nothing_is_left(four: Told) -> None:
    shares = []
    for one in four.ids:
        four.ran(one, for_s=1)
        four.left_s()
        shares.append(four.progress.share_done())
    assert (four.left_s(), shares[-1]) == (0, 1)
    assert shares == sorted(shares)


def test_benches_are_timed_as_a_whole_and_further_ones_are_added(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=1, learn=False, cost=CostSpec(processes=1))
    told = Told(tmp_path / "r", study)
    assert told.left_s() is None
    told.ran(*told.ids[:4], for_s=8)
    assert told.left_s() == 4 * 2
    more = bench_of(study, "train", 2)
    add_groups(told.run, more)
    told.tell("group_begins", *(one for group in more for one in group.ids))
    assert told.left_s() == 8 * 2
    assert len(told.progress.trials) == 12
