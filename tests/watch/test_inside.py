"""trainlab.watch: a loop of the user's own, watched from inside it."""

import gc
import re
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import trainlab
from own_loop import OwnLoop, state_of_torch
from trainlab.errors import SpecError, WorkloadError
from trainlab.lab import resume_run
from trainlab.lab.inside import WatchedLoop
from trainlab.watching import watched_run

PROBES = [
    "*.weight:grad:norm@step",
    "*.weight:update:norm",
    "type=ReLU:activation:zero_fraction@2",
    "type=Linear:grad_output:norm",
]


DRAWN: list[float] = []
"""Random numbers after the block."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> WatchedLoop:
    torch.set_num_threads(1)
    loop, out = OwnLoop(), tmp_path_factory.mktemp("inside") / "run"
    with trainlab.watch(loop.model, loop.optimizer, out=out, probes=PROBES) as lab:
        loop.train(told=lambda name, value: lab.log(**{name: value}))
    DRAWN[:] = torch.rand(3).tolist()
    return lab


def test_losses_and_later_random_numbers_are_the_same_with_everything_on(lab: WatchedLoop) -> None:
    losses = OwnLoop().train()
    assert torch.rand(3).tolist() == DRAWN
    points = [line for line in lab.run.trial("learn-seed1").curve() if line["kind"] == "step"]
    assert [line["train/loss"] for line in points] == losses


def test_a_run_folder_is_left_as_of_any_learn_trial(lab: WatchedLoop) -> None:
    run = trainlab.open_run(lab.path)
    (record,) = run.trials()
    assert (record.id, record.state, record.steps_done, record.epochs_done) == (
        *("learn-seed1", "done"),
        *(8, 2),
    )
    assert record.resolved["batch_size"] == 16
    assert record.resolved["lr"] == 0.1
    folder = run.trial("learn-seed1")
    assert set(record.files) == {
        *("curve.jsonl", "watched.json", "probes.jsonl", "probes.json", "network.json")
    }
    folder.check_files(record)
    assert [row.type for row in folder.network.read().rows] == [
        *("Linear", "BatchNorm1d", "ReLU", "Dropout", "Linear")
    ]
    assert folder.watched.read().num_steps == 8
    assert lab.results()["state"].tolist() == ["done"]
    assert "<" in (lab._repr_html_() or "")


def test_a_metric_told_after_a_test_is_of_the_test_set(lab: WatchedLoop) -> None:
    epochs = lab.run.trial("learn-seed1").epochs()
    told: list[float] = []
    OwnLoop().train(told=lambda name, value: told.append(value))
    assert [line["test/accuracy"] for line in epochs] == [told[4], told[9]]
    assert [line["train/accuracy"] for line in epochs] == [sum(told[:4]) / 4, sum(told[5:9]) / 4]


def test_probes_see_what_the_optimizer_is_given(lab: WatchedLoop) -> None:
    lines = lab.run.trial("learn-seed1").probe_lines()
    norms = [line.value for line in lines if line.layer == "0.weight" and line.quantity == "grad"]
    loop, expected = OwnLoop(), list[float]()
    weight = loop.model[0].weight
    loop.optimizer.register_step_pre_hook(
        lambda *_: expected.append(weight.grad.norm().item())  # type: ignore[union-attr,func-returns-value]
    )
    loop.train()
    assert norms == pytest.approx(expected, rel=1e-5)
    zeros = [line for line in lines if line.quantity == "activation"]
    assert [(line.layer, line.epoch, line.step) for line in zeros] == [
        *(("2", 1, 2), ("2", 1, 4), ("2", 2, 6), ("2", 2, 8))
    ]


def test_tensorboard_has_curves_graph_and_probes(lab: WatchedLoop) -> None:
    board = EventAccumulator(str(lab.run.trial("learn-seed1").tensorboard_folder)).Reload()
    tags = board.Tags()
    assert tags["graph"]
    assert {"loss/train over samples", "accuracy/test over samples"} <= set(tags["scalars"])
    assert any(tag.startswith("probe/grad:norm@step/") for tag in tags["scalars"])
    assert [point.step for point in board.Scalars("loss/train over samples")] == [64, 128]


def test_tensorboard_has_the_settings_that_were_seen_as_hyper_parameters(lab: WatchedLoop) -> None:
    board = EventAccumulator(str(lab.run.trial("learn-seed1").tensorboard_folder)).Reload()
    told = board.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    session = HParamsPluginData.FromString(told).session_start_info.hparams
    numbers = {name: session[name].number_value for name in ("lr", "batch_size", "seed")}
    assert numbers == {"lr": 0.1, "batch_size": 16, "seed": 1}
    words = {name: session[name].string_value for name in ("optimizer", "device")}
    assert words == {"optimizer": "SGD", "device": "cpu"}
    assert set(session) == {*numbers, *words, "script"}


def test_what_the_block_raises_is_recorded_and_goes_on_and_torch_is_as_before(
    tmp_path: Path,
) -> None:
    def fail(name: str, value: float) -> None:
        1 / 0  # noqa: B018

    before, loop = state_of_torch(), OwnLoop()
    with (
        pytest.raises(ZeroDivisionError),
        trainlab.watch(out=tmp_path / "run", probes=PROBES) as lab,
    ):
        loop.train(told=fail)
    assert state_of_torch() == before
    assert not loop.model._forward_hooks
    (record,) = lab.run.trials()
    assert (record.state, record.steps_done) == ("failed", 1)
    assert record.error is not None
    told = r"test_inside.py:\d+: loop raised ZeroDivisionError: division by zero"
    assert re.fullmatch(told, record.error.mistake)


def test_an_interrupt_is_recorded_as_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), trainlab.watch(out=tmp_path / "run") as lab:
        raise KeyboardInterrupt
    assert [one.state for one in lab.run.trials()] == ["interrupted"]
    with pytest.raises(WorkloadError, match=r"watched from inside.*run the loop anew"):
        resume_run(lab.path)


def interrupted(line: int, call: Callable[..., object], *arguments: Any) -> None:
    """The call, with an interrupt at this line of ours."""
    num_lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_lines
        if not str(frame.f_globals["__name__"]).startswith(("trainlab.lab", "trainlab.watching")):
            return None
        num_lines += event == "line"
        if event == "line" and num_lines == line:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(*arguments)
    finally:
        sys.settrace(None)


def test_an_interrupt_at_any_moment_of_entering_and_leaving_frees_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_run, "overhead_us", lambda **_: (0.0, 0.0))
    before = state_of_torch()
    for line in (5, 22):
        lab = trainlab.watch(out=tmp_path / f"in{line}", tensorboard=False)
        interrupted(line, lab.__enter__)
        assert state_of_torch() == before
    for line in (13, 20, 25):
        lab = trainlab.watch(out=tmp_path / f"out{line}", tensorboard=False)
        lab.__enter__()
        interrupted(line, lab.__exit__, None, None, None)
        assert state_of_torch() == before
        assert [one.state for one in lab.run.trials()] == ["interrupted"], line


def test_a_model_that_is_let_go_of_is_not_held_on_to(tmp_path: Path) -> None:
    """Where several are trained one after the other, memory may have room for one."""
    with trainlab.watch(out=tmp_path / "run") as lab:
        loop = OwnLoop()
        loop.train()
        model = weakref.ref(loop.model)
        del loop
        gc.collect()
        is_gone = model() is None
    assert is_gone
    assert lab.run.trial("learn-seed1").network.read().rows


def test_two_watches_at_once_are_refused(tmp_path: Path) -> None:
    with (
        trainlab.watch(out=tmp_path / "run"),
        pytest.raises(SpecError, match=r"is watched already.*leave the other block first"),
        trainlab.watch(out=tmp_path / "other"),
    ):
        pass
    assert not (tmp_path / "other").exists()


def test_a_probe_that_cannot_be_is_told_as_soon_as_that_is_known(tmp_path: Path) -> None:
    """In the first step, before it, or before anything is made."""
    for probe, told, steps in (
        (
            "nope:activation:mean",
            r"'nope' reaches no layer; there are Sequential, 0, 1, 2, 3, 4$",
            1,
        ),
        ("fc.weight:grad:norm", r"probe fc\.weight:grad:norm@epoch.*0\.weight", 0),
    ):
        with (
            pytest.raises(SpecError, match=told),
            trainlab.watch(out=tmp_path / str(steps), probes=probe) as lab,
        ):
            OwnLoop().train()
        assert lab.run.trials()[0].steps_done == steps
    with pytest.raises(SpecError, match="probes: got 'relu', must be SELECT:QUANTITY:REDUCER"):
        trainlab.watch(out=tmp_path / "run", probes=["relu"])
    assert not (tmp_path / "run").exists()


def test_log_outside_of_the_block_is_refused(lab: WatchedLoop) -> None:
    trainlab.log(accuracy=1.0)  # heard by nobody: a script can keep it
    with pytest.raises(SpecError, match="the block has ended"):
        lab.log(accuracy=1.0)


def test_the_loss_that_a_loop_logs_does_not_hide_the_one_that_is_seen(tmp_path: Path) -> None:
    with trainlab.watch(out=tmp_path / "run", tensorboard=False) as lab:
        OwnLoop().train(1, told=lambda name, value: trainlab.log(loss=5.0))
    (line,) = lab.run.trial("learn-seed1").epochs()
    assert line["train/loss_logged"] == 5.0
    assert line["train/loss"] < 2.0
    assert not lab.run.trial("learn-seed1").tensorboard_folder.exists()


def test_a_probe_that_cannot_be_computed_ends_and_the_training_goes_on(tmp_path: Path) -> None:
    """Of eight bits torch has no norm; a lazy layer that is never called has no weights."""

    class Eight(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.to(torch.float8_e4m3fn)

    for number, probe in enumerate(("1:activation:norm@step", "*.weight:update:norm@step")):
        with trainlab.watch(out=tmp_path / str(number), tensorboard=False, probes=probe) as lab:
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), Eight())
            model[0].unused = torch.nn.LazyLinear(1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                model(torch.ones(3, 2)).float().square().mean().backward()
                optimizer.step()
        (record,) = lab.run.trials()
        assert (record.state, record.steps_done) == ("done", 2)
        assert "probes_ended" in [one.code for one in record.notes]


def test_inputs_that_cannot_be_looked_at_are_the_scripts_own(tmp_path: Path) -> None:
    """A sparse graph, a lazy layer that is never called, and a tuple that nobody else can make."""

    class Pair(tuple[Any, ...]):
        def __new__(cls, graph: torch.Tensor, features: torch.Tensor) -> "Pair":
            return super().__new__(cls, (graph, features))

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.unused = torch.nn.Linear(2, 1), torch.nn.LazyLinear(3)

        def forward(self, given: Any) -> torch.Tensor:
            return self.layer(torch.sparse.mm(*given))

    given = torch.eye(5).to_sparse(), torch.ones(5, 2)
    for made, told in ((lambda *one: one, []), (Pair, ["network_failed"])):
        with trainlab.watch(out=tmp_path / str(len(told)), tensorboard=False) as lab:
            model = Graph()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for graph, features in torch.utils.data.DataLoader([given] * 2, batch_size=None):
                model(made(graph, features)).square().mean().backward()
                optimizer.step()
        (record,) = lab.run.trials()
        assert (record.state, record.steps_done) == ("done", 2)
        assert [one.code for one in record.notes] == told
        assert ("network.json" in record.files) is not bool(told)
