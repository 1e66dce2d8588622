"""A change as it is written, made to this process."""

import ast
import builtins
import inspect
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.instruments.calls import Patches
from trainlab.spec.script import ChangeName, change_parts
from trainlab.watching.statements import containers_of

# Change: what is done to torch before a script runs, and undone when it has ended.


class ChangeError(Exception):
    """The change cannot be made to this script."""


class UnusedChangeError(ChangeError):
    """It made no difference to anything that the script did."""


class Change:
    """One change under way. `code`, where there is one, runs in place of the script's own."""

    def __init__(self, name: ChangeName, value: str) -> None:
        self.name, self.value = name, value
        self.code: CodeType | None = None
        self.on_step: Callable[[], None] | None = None
        """Is called at the end of every step."""
        self.num_uses = 0
        """Times that it has made a difference."""
        self.patches = Patches()

    @property
    def number(self) -> int:
        """Its value as a positive number."""
        try:
            number = int(self.value)
        except ValueError:
            number = 0
        if number < 1:
            raise ChangeError(f"{self.name}: got {self.value!r}, must be a whole number from 1 on")
        return number

    def close(self) -> None:
        """Undoes it."""
        self.patches.close()

    def check_used(self) -> None:
        """UnusedChangeError where it made no difference."""
        if not self.num_uses:
            raise UnusedChangeError(f"{self.name}: the script does nothing that it would change")


# A list or the like of a script that is emptied, but for what it got last, at the end of every step.

LOOK_EVERY = 10
"""Steps between two looks for the container: a script that runs again has another."""


def drop_container(change: Change, script: Path) -> None:
    """By its name in the script, as `history` or `self.history`."""
    found: list[Any] = []
    num_steps = 0

    def step_ended() -> None:
        nonlocal found, num_steps
        if num_steps % LOOK_EVERY == 0:
            found = [one for name, one in containers_of(script) if name == change.value]
        num_steps += 1
        for one in found:
            if len(one) > 1:
                change.num_uses += 1
                keep_last(one)

    change.on_step = step_ended


def keep_last(container: Any) -> None:
    """Takes all but the last out of a list, a deque or a mapping."""
    if isinstance(container, deque):
        while len(container) > 1:
            container.popleft()
    elif isinstance(container, MutableSequence):
        del container[:-1]
    elif isinstance(container, MutableMapping):
        for key in list(container)[:-1]:
            del container[key]


# Changes of where batches come from.

FIRST = "_trainlab_first_batch"
LEFT = "_trainlab_batches_left"
"""What an iterator keeps of its pass."""


def same_batch(change: Change, script: Path) -> None:
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
        if torch.is_grad_enabled() and (number := _num_batches(iterator)) is not None:
            kept[FIRST], kept[LEFT] = batch, number - 1
        return batch

    change.patches.put(_BaseDataLoaderIter, "__next__", first_again)


def _num_batches(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except (TypeError, NotImplementedError):
        return None


def one_batch_of_evaluation(change: Change, script: Path) -> None:
    """A pass without gradients ends after so many batches."""
    following, most = _BaseDataLoaderIter.__next__, change.number

    def cut_short(iterator: Any) -> Any:
        if torch.is_grad_enabled():
            return following(iterator)
        kept = iterator.__dict__
        given = kept.get(LEFT, 0)
        if given >= most:
            change.num_uses += 1
            raise StopIteration
        kept[LEFT] = given + 1
        return following(iterator)

    change.patches.put(_BaseDataLoaderIter, "__next__", cut_short)


def more_workers(change: Change, script: Path) -> None:
    """Loaders that shuffle, or draw by a sampler of the script's, get so many workers, which stay."""
    number = change.number
    _with_options(change, num_workers=number, persistent_workers=True)


def pinned_memory(change: Change, script: Path) -> None:
    """Those loaders put batches where a GPU can fetch them by itself."""
    _with_options(change, pin_memory=True)


def _with_options(change: Change, **options: Any) -> None:
    make = DataLoader.__init__
    signature = inspect.signature(make)

    def made_otherwise(loader: Any, *arguments: Any, **given: Any) -> None:
        asked = signature.bind(loader, *arguments, **given).arguments
        if any(asked.get(name) for name in ("shuffle", "sampler", "batch_sampler", "drop_last")):
            change.num_uses += 1
            asked |= options
        make(*_positional(asked), **asked)

    def _positional(asked: dict[str, Any]) -> tuple[Any, ...]:
        return asked.pop("self"), asked.pop("dataset")

    change.patches.put(DataLoader, "__init__", made_otherwise)


# A script that writes nothing: no files, no checkpoints, no lines.


def no_logging(change: Change, script: Path) -> None:
    """Files that are opened to be written lead nowhere; torch.save, fsync, print and SummaryWriter do
    nothing. A script that reads what it wrote fails so."""
    really_open = builtins.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike) and set(mode) & set("wax"):
            change.num_uses += 1
            return really_open(os.devnull, mode.replace("x", "w"), *arguments, **options)
        return really_open(file, mode, *arguments, **options)

    def nothing(*arguments: Any, **options: Any) -> None:
        change.num_uses += 1

    change.patches.put(builtins, "open", opened)
    change.patches.put(io, "open", opened)
    change.patches.put(builtins, "print", nothing)
    change.patches.put(torch, "save", nothing)
    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            change.patches.put(os, name, nothing)
    if "SummaryWriter" in script.read_text(encoding="utf-8") and find_spec("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

        for name in [one for one in vars(SummaryWriter) if one.startswith("add_")]:
            change.patches.put(SummaryWriter, name, nothing)
    # Bars of progress write to the streams themselves.
    change.patches.put(sys, "stdout", really_open(os.devnull, "w"))
    change.patches.put(sys, "stderr", sys.stdout)


# The optimizers of a script, by torch's fused code.


def fused(change: Change, script: Path) -> None:
    """Every optimizer of torch's that has fused code uses it, whatever it is asked for."""
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
            _make_fused(change, kind)


def _make_fused(change: Change, kind: Any) -> None:
    make = kind.__init__
    parameters = inspect.signature(make).parameters

    def made_fused(optimizer: Any, *arguments: Any, **options: Any) -> None:
        if not options.get("differentiable"):
            change.num_uses += 1
            options["fused"] = True
            if "foreach" in parameters and len(arguments) < list(parameters).index("foreach"):
                options["foreach"] = False
        make(optimizer, *arguments, **options)

    change.patches.put(kind, "__init__", made_fused)


# One statement of a script, run once and then no more.

ONCE = "_trainlab_is_first"
"""The name by which the script's code asks whether to run the statement."""
MARK = "_trainlab_has_run"


def without_statement(change: Change, script: Path) -> None:
    """The statement that begins at that line runs the first time only, so that names that it sets are
    there."""
    line = change.number
    tree = ast.parse(script.read_bytes(), str(script))
    cut = _Cut(line)
    changed = ast.fix_missing_locations(cut.visit(tree))
    if not cut.is_found:
        raise ChangeError(f"without: line {line} begins no statement that can be left out")

    def is_first() -> bool:
        change.num_uses += 1
        # A script that runs again in this process has new names, the mark is among them.
        names = sys._getframe(1).f_globals
        is_new = MARK not in names
        names[MARK] = True
        return is_new

    change.patches.put(builtins, ONCE, is_first)
    change.code = compile(changed, str(script), "exec", dont_inherit=True)


class _Cut(ast.NodeTransformer):
    """Puts `if _trainlab_is_first():` before a statement."""

    def __init__(self, line: int) -> None:
        self._line, self.is_found = line, False

    def _guarded(self, node: ast.stmt) -> ast.stmt:
        if self.is_found or node.lineno != self._line:
            return node
        self.is_found = True
        asked = ast.Call(ast.Name(ONCE, ast.Load()), [], [])
        return ast.copy_location(ast.If(asked, [node], []), node)

    visit_Expr = visit_Assign = visit_AugAssign = visit_AnnAssign = _guarded  # noqa: N815  ast's names


def _other_threads(change: Change, script: Path) -> None:
    number, set_threads = change.number, torch.set_num_threads
    set_threads(number)
    # What the script asks for itself is not heard.
    change.patches.put(torch, "set_num_threads", lambda number: None)
    change.num_uses = 1


def _other_argument(change: Change, script: Path) -> None:
    """The script has been given another argument: nothing is left to do here."""
    change.num_uses = 1


CHANGES: Mapping[ChangeName, Callable[[Change, Path], None]] = {
    "same_batch": same_batch,
    "workers": more_workers,
    "pin_memory": pinned_memory,
    "fused": fused,
    "threads": _other_threads,
    "batch_size": _other_argument,
    "evaluation": one_batch_of_evaluation,
    "no_logging": no_logging,
    "without": without_statement,
    "drop": drop_container,
}


def apply_change(text: str, script: Path) -> Change | None:
    """Makes a change, as `threads=1`, before the script runs; None for none. ChangeError where it cannot be
    made to it. Before the script is watched: what watches it must see it as changed."""
    if not text:
        return None
    change = Change(*change_parts(text))
    try:
        CHANGES[change.name](change, script)
    except ChangeError:
        change.close()
        raise
    return change
