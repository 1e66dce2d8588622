"""What `trainlab diagnose` does in a script's process, beside watching it.

First the script's own text is searched for where its time and memory go: statements under way between
torch's calls, and containers that grow from step to step. Then, in other processes, one thing about it is
made otherwise from outside, to see what that does to its time: an intervention, done to torch before the
script runs, and undone when it has ended.
"""

import ast
import builtins
import inspect
import io
import os
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls import Patches
from trainlab.record.script_record import GrowingRow, StatementRow
from trainlab.spec.script import ChangeName, change_parts
from trainlab.watching.timeline import LOSS, OTHER, PARTS, PREPARE, Timeline
from trainlab.watching.tracer import Tracer

FIRST_LOOK, NEXT_LOOK = 10, 25
"""Containers are looked at after so many updates; then again, ever more seldom."""
WARM_STEPS = 3
"""What happens before is start-up."""
EVERY_S = 0.002
MOST_ROWS = 40
MOST_LOOKED_AT = 8
"""The newest entries of a container that are searched for tensors."""
WRITING_IN = {OTHER: "logging", PREPARE: "logging", LOSS: "logging_in_loss"}
"""In place of what lies between calls, where it writes."""
WRITING_FILES = ("serialization.py", "tensorboard", "logging", "tqdm", "wandb", "csv.py")
WRITING = re.compile(r"\b(print|save|write\w*|flush|fsync|dump|add_\w+)\(")


class Search:
    """Samples statements, and looks at containers now and then."""

    def __init__(self, script: Path, tracer: Tracer) -> None:
        self._script, self._tracer = script, tracer
        self._sampler: StatementSampler | None = None
        self._first: dict[str, tuple[int, int]] = {}
        """Of each container at the first look, its identity and its length."""
        self._next_look = NEXT_LOOK
        self._growing: list[GrowingRow] = []

    def step_ended(self, step: int) -> None:
        if step == WARM_STEPS:
            self._sampler = StatementSampler(self._script, self._tracer.timeline)
        elif step == FIRST_LOOK:
            containers = containers_of(self._script)
            self._first = {name: (id(one), len(one)) for name, one in containers}
        elif step == self._next_look:
            self._growing = self._grown(step - FIRST_LOOK)
            self._next_look = 2 * step

    def _grown(self, num_steps: int) -> list[GrowingRow]:
        """Those that have grown by at least half an entry per step, the largest first."""
        rows = []
        for name, one in containers_of(self._script):
            key, length = self._first.get(name, (0, 0))
            grown = len(one) - length
            if key == id(one) and grown >= 0.5 * num_steps:
                size = _entry_bytes(one) * grown / num_steps
                rows.append(GrowingRow(name=name, tensor_bytes=int(size)))
        return sorted(rows, key=lambda row: -row.tensor_bytes)

    def close(self) -> dict[str, Any]:
        """The script has ended: what was found, as in the record."""
        sampler, found = self._sampler, {"growing": self._growing}
        if sampler is None:
            return found
        sampler.close()
        return {**found, "samples": dict(sampler.samples), "statements": sampler.rows()}


class StatementSampler:
    """Looks at the stack of the thread that made it, many times a second, until it is closed."""

    def __init__(self, script: Path, timeline: Timeline) -> None:
        source = script.read_text(encoding="utf-8")
        self._own, self._lines = str(script), source.splitlines()
        self._starts = {
            line: node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        """Of each line, the first one of the statement without a body that holds it."""
        self._timeline, self._thread = timeline, threading.get_ident()
        self._pending: list[tuple[str, tuple[int, ...]]] = []
        """Parts, and the first lines of the statements under way, outermost first."""
        self._counts: dict[int, Counter[str]] = {}
        self._depths: dict[int, int] = {}
        self.samples: Counter[str] = Counter()
        timeline.on_settled = self._settled
        self._is_over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def close(self) -> None:
        self._is_over.set()
        self._looking.join()
        self._timeline.on_settled = None

    def rows(self) -> list[StatementRow]:
        """The statements that were seen, the most often seen first; of equals, the one that calls."""
        counts = self._counts
        order = sorted(counts, key=lambda line: (-counts[line].total(), self._depths[line]))
        return [
            StatementRow(line=line, text=self._lines[line - 1].strip(), samples=dict(counts[line]))
            for line in order[:MOST_ROWS]
        ]

    def _look(self) -> None:
        while not self._is_over.wait(EVERY_S):
            part = self._timeline.part
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._pending.append(self._sample(part, frame))
            del frame

    def _sample(self, part: int, frame: FrameType | None) -> tuple[str, tuple[int, ...]]:
        lines: list[int] = []
        is_writing, at = False, ""
        while frame is not None:
            name = frame.f_code.co_filename
            if name == self._own:
                if (start := self._starts.get(frame.f_lineno)) is not None:
                    at = at or self._lines[start - 1]
                    lines.append(start)
            elif not at:
                is_writing = is_writing or any(word in name for word in WRITING_FILES)
            frame = frame.f_back
        is_writing = is_writing or WRITING.search(at) is not None
        part_name = WRITING_IN.get(part, PARTS[part]) if is_writing else PARTS[part]
        return part_name, tuple(reversed(lines))

    def _settled(self, evaluated: frozenset[str] | None) -> None:
        """What was seen since was training, but for these parts; None: all was evaluation."""
        samples, self._pending = self._pending, []
        for part, lines in samples:
            name = "evaluation" if evaluated is None or part in evaluated else part
            self.samples[name] += 1
            for depth, line in enumerate(dict.fromkeys(lines)):
                self._counts.setdefault(line, Counter())[name] += 1
                self._depths[line] = min(depth, self._depths.get(line, depth))


def containers_of(script: Path) -> Iterator[tuple[str, Any]]:
    """Names and lists, deques and dicts of the functions of a script that run, of its module, and of its
    objects there."""
    seen: set[int] = set()
    frame: FrameType | None = sys._getframe(1)
    scopes: list[Any] = []
    module: Any = {}
    while frame is not None:
        if frame.f_code.co_filename == str(script):
            scopes.append(frame.f_locals)
            module = frame.f_globals
        frame = frame.f_back
    for names in (*scopes, module):
        for name, value in list(names.items()):
            # Of an object of a class that the script made, its attributes.
            is_own = type(value).__module__ == "__main__"
            own = getattr(value, "__dict__", {}) if is_own else {}
            inner = [(f"{name}.{key}", one) for key, one in own.items()]
            for path, one in [(name, value), *inner] if not name.startswith("__") else ():
                if isinstance(one, list | deque | dict) and id(one) not in seen:
                    seen.add(id(one))
                    yield path, one


def _entry_bytes(container: Any) -> float:
    """The memory of the tensors of an entry, on average over the newest."""
    entries = list(container.values() if isinstance(container, dict) else container)
    newest = entries[-MOST_LOOKED_AT:]
    storages = (tensor.untyped_storage() for tensor in tensors_in(newest))
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values()) / max(1, len(newest))


# Interventions: one change to a script, made from outside.

ONCE, KEPT, HAS_RUN = "_trainlab_once", "_trainlab_kept", "_trainlab_has_run"
"""By which a script's code asks whether to run a statement, and the mark of one that has run."""
FIRST, LEFT = "_trainlab_first_batch", "_trainlab_batches_left"
"""What an iterator keeps of its pass."""
LOOK_EVERY = 10
"""Steps between two looks for a container: a script that runs again has another."""


class ChangeError(Exception):
    """The change cannot be made to this script."""


class UnusedChangeError(ChangeError):
    """It made no difference to anything that the script did."""


class ScriptChange:
    """One change under way, or none. `code`, where there is one, runs in place of the script's own."""

    def __init__(self, script: Path, name: ChangeName | None = None, value: str = "") -> None:
        self.name, self.value, self.script = name, value, script
        self.code: CodeType | None = None
        self.on_step: Callable[[], None] = lambda: None
        """Is called at the end of every step."""
        self.num_uses = 0
        """Times that it has made a difference."""
        self.patches = Patches()

    @property
    def number(self) -> int:
        """Its value as a positive number."""
        if not self.value.isdecimal() or not int(self.value):
            raise ChangeError(f"{self.name}: got {self.value!r}, must be a whole number from 1 on")
        return int(self.value)

    def close(self) -> None:
        self.patches.close()

    def check_used(self) -> None:
        """UnusedChangeError where it made no difference."""
        if self.name and not self.num_uses:
            raise UnusedChangeError(f"{self.name}: the script does nothing that it would change")


def apply_change(text: str, script: Path) -> ScriptChange:
    """Makes a change, as `threads=1`, or none, before the script runs. ChangeError where it cannot be made
    to it. Before the script is watched: what watches it must see it as changed."""
    if not text:
        return ScriptChange(script)
    name, value = change_parts(text)
    change = ScriptChange(script, name, value)
    try:
        CHANGES[name](change)
    except ChangeError:
        change.close()
        raise
    return change


def _same_batch(change: ScriptChange) -> None:
    """A loader that is trained on gives the first batch of a pass again and again, as many as it has."""
    following = _BaseDataLoaderIter.__next__

    def first_again(iterator: Any) -> Any:
        kept = iterator.__dict__
        if FIRST in kept:
            if kept[LEFT] < 1:
                raise StopIteration
            kept[LEFT] -= 1
            change.num_uses += 1
            return kept[FIRST]
        batch = following(iterator)
        if torch.is_grad_enabled():
            with suppress(TypeError, NotImplementedError):  # nobody knows how many it has
                kept[LEFT] = len(iterator) - 1
                kept[FIRST] = batch
        return batch

    change.patches.put(_BaseDataLoaderIter, "__next__", first_again)


def _short_evaluation(change: ScriptChange) -> None:
    """A pass without gradients ends after so many batches."""
    following, most = _BaseDataLoaderIter.__next__, change.number

    def cut_short(iterator: Any) -> Any:
        if not torch.is_grad_enabled():
            given = iterator.__dict__.get(LEFT, 0)
            if given >= most:
                change.num_uses += 1
                raise StopIteration
            iterator.__dict__[LEFT] = given + 1
        return following(iterator)

    change.patches.put(_BaseDataLoaderIter, "__next__", cut_short)


def _make_otherwise(
    change: ScriptChange, kind: Any, is_meant: Callable[[Mapping[str, Any]], Any], **options: Any
) -> None:
    """Objects of a class are made with these options, where what was asked for is meant."""
    make = kind.__init__
    signature = inspect.signature(make)

    def made_otherwise(one: Any, *arguments: Any, **given: Any) -> None:
        asked = signature.bind(one, *arguments, **given).arguments
        if is_meant(asked):
            change.num_uses += 1
            asked |= options
        make(asked.pop("self"), **asked)

    change.patches.put(kind, "__init__", made_otherwise)


def _other_loaders(change: ScriptChange, **options: Any) -> None:
    """Of loaders that shuffle, or draw by a sampler of the script's."""
    names = "shuffle", "sampler", "batch_sampler", "drop_last"
    _make_otherwise(change, DataLoader, lambda asked: any(map(asked.get, names)), **options)


def _fused(change: ScriptChange) -> None:
    """Every optimizer of torch's that has fused code uses it, whatever it is asked for."""
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
            options = {"fused": True, "foreach": False}
            _make_otherwise(change, kind, lambda one: not one.get("differentiable"), **options)


def _other_threads(change: ScriptChange) -> None:
    torch.set_num_threads(change.number)
    # What the script asks for itself is not heard.
    change.patches.put(torch, "set_num_threads", lambda number: None)
    change.num_uses = 1


def _other_argument(change: ScriptChange) -> None:
    """The script has been given another argument: nothing is left to do here."""
    change.num_uses = 1


def _no_logging(change: ScriptChange) -> None:
    """Files that are opened to be written lead nowhere; torch.save, fsync, print and SummaryWriter do
    nothing. A script that reads what it wrote fails so."""
    really_open, put = builtins.open, change.patches.put

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike) and set(mode) & set("wax"):
            change.num_uses += 1
            return really_open(os.devnull, mode.replace("x", "w"), *arguments, **options)
        return really_open(file, mode, *arguments, **options)

    def nothing(*arguments: Any, **options: Any) -> None:
        change.num_uses += 1

    for owner in (builtins, io):
        put(owner, "open", opened)
    for owner, name in ((builtins, "print"), (torch, "save"), (os, "fsync")):
        put(owner, name, nothing)
    if "SummaryWriter" in change.script.read_text(encoding="utf-8") and find_spec("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

        for name in [one for one in vars(SummaryWriter) if one.startswith("add_")]:
            put(SummaryWriter, name, nothing)
    # Bars of progress write to the streams themselves.
    put(sys, "stdout", really_open(os.devnull, "w"))
    put(sys, "stderr", sys.stdout)


def _no_anomaly_checks(change: ScriptChange) -> None:
    """Whoever asks autograd to look for anomalies is not heard."""
    really = torch.set_anomaly_enabled

    def asked(*arguments: Any, **options: Any) -> None:
        change.num_uses += 1
        really(False)

    change.patches.put(torch, "set_anomaly_enabled", asked)


class _Cut(ast.NodeTransformer):
    """Puts `if _trainlab_once():` before the statement that begins at a line; one that sets names sets them
    to what it gave the first time."""

    def __init__(self, line: int) -> None:
        self._line, self.is_found = line, False

    def _guarded(self, node: ast.stmt) -> ast.stmt:
        if self.is_found or node.lineno != self._line:
            return node
        self.is_found = True
        asked = ast.Call(ast.Name(ONCE, ast.Load()), [], [])
        again: list[ast.stmt] = []
        if isinstance(node, ast.Assign):
            kept = ast.Call(ast.Name(ONCE, ast.Load()), [node.value], [])
            again = [ast.Assign(node.targets, ast.Call(ast.Name(KEPT, ast.Load()), [], []))]
            node = ast.copy_location(ast.Assign(node.targets, kept), node)
        return ast.copy_location(ast.If(asked, [node], again), node)

    visit_Expr = visit_Assign = visit_AugAssign = visit_AnnAssign = _guarded  # noqa: N815  ast's names


def _without_statement(change: ScriptChange) -> None:
    """The statement that begins at that line runs the first time only; names that it sets get the same
    value again."""
    cut, name = _Cut(change.number), str(change.script)
    changed = ast.fix_missing_locations(cut.visit(ast.parse(change.script.read_bytes(), name)))
    if not cut.is_found:
        raise ChangeError(f"without: line {change.number} begins no statement that can be left out")

    def once(*given: Any) -> Any:
        """Whether it runs the first time; or, given its value, that."""
        # A script that runs again in this process has new names, the mark is among them.
        names = sys._getframe(1).f_globals
        if given:
            names[HAS_RUN] = given[0]
            return given[0]
        change.num_uses += 1
        is_first = HAS_RUN not in names
        names.setdefault(HAS_RUN, None)
        return is_first

    change.patches.put(builtins, ONCE, once)
    change.patches.put(builtins, KEPT, lambda: sys._getframe(1).f_globals[HAS_RUN])
    change.code = compile(changed, name, "exec", dont_inherit=True)


def _drop_container(change: ScriptChange) -> None:
    """A container, by its name in the script as `history` or `self.history`, is emptied but for what it got
    last at the end of every step."""
    found: list[Any] = []
    num_steps = 0

    def step_ended() -> None:
        nonlocal found, num_steps
        if num_steps % LOOK_EVERY == 0:
            found = [one for name, one in containers_of(change.script) if name == change.value]
        num_steps += 1
        for one in found:
            if len(one) > 1:
                change.num_uses += 1
                keep_last(one)

    change.on_step = step_ended


def keep_last(container: Any) -> None:
    """Takes all but the last out of a list, a deque or a mapping."""
    if isinstance(container, dict):
        for key in list(container)[:-1]:
            del container[key]
    elif isinstance(container, deque):
        while len(container) > 1:
            container.popleft()
    else:
        del container[:-1]


CHANGES: Mapping[ChangeName, Callable[[ScriptChange], None]] = {
    "same_batch": _same_batch,
    "workers": lambda one: _other_loaders(one, num_workers=one.number, persistent_workers=True),
    "pin_memory": lambda change: _other_loaders(change, pin_memory=True),
    "fused": _fused,
    "threads": _other_threads,
    "batch_size": _other_argument,
    "evaluation": _short_evaluation,
    "no_logging": _no_logging,
    "no_anomaly_checks": _no_anomaly_checks,
    "without": _without_statement,
    "drop": _drop_container,
}
