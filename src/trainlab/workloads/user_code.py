"""The user's code: which field of the workload runs, and what an error in it says, from her file on."""

import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from trainlab.errors import Interrupted, cut_lines, said_by
from trainlab.record.trial_record import Failure

Item = TypeVar("Item")

OURS = Path(__file__).parents[1]
OF_WORKLOADS = (OURS / "data", OURS / "workloads")
"""Where what a user gives is looked at: an error there is about what she gave."""
FIELD = "_trainlab_field"
"""The attribute of an error that names the field of the workload that raised it."""


SENT = re.compile(
    r"in DataLoader worker process \d+\.\nOriginal Traceback .*?:\n(?P<trace>.*)", re.DOTALL
)
"""How torch puts an error of a process that fetches data, with its traceback as text."""
SENT_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in .*\n(?:    .*\n)*')


class Running:
    """Entered around every call of the user's code: an error gets the name of the field that ran. It passes
    on as it is, for its kind and message are the user's; the innermost name stays."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> None:
        is_theirs = isinstance(error, Exception | SystemExit | KeyboardInterrupt)
        if trace is None or not is_theirs or isinstance(error, Interrupted):
            return
        if not hasattr(error, FIELD) and not _is_ours(trace):
            layer = _layer_of(trace)
            setattr(error, FIELD, f"{self._field}, in layer {layer}" if layer else self._field)


MODEL, LOSS, PREPARE, BACKWARD = map(Running, ("model", "loss", "prepare", "backward"))
STEP, EVALUATE, UPDATE = map(Running, ("step", "evaluate", "update"))
DATA, OPTIMIZER, SCHEDULE = map(Running, ("data", "optimizer", "optimizer.schedule"))
FILE = Running("import")


def naming(field: str, items: Iterable[Item]) -> Iterator[Item]:
    """What the user's code gives one after the other, while it gives it."""
    coming, running = iter(items), Running(field)
    while True:
        with running:
            try:
                item = next(coming)
            except StopIteration:
                return
        yield item


def mistake_in(error: BaseException | None, place: str = "") -> Failure | None:
    """The user's mistake that an error is, or was raised from; None where her code raised nothing. `place`:
    where she makes the workload, which stands for a line of hers where only libraries were at work."""
    while error is not None and not hasattr(error, FIELD):
        error = error.__cause__
    if error is None:
        return None
    kind, message = type(error).__name__, said_by(error)
    line = own_line(error, place)
    trace = own_traceback(error) if line else ""
    if (sent := SENT.search(message)) is not None:  # as text from a process that fetches data
        frames = [one for one in SENT_FRAME.finditer(sent["trace"]) if is_own(one["file"])]
        message = SENT_FRAME.sub("", sent["trace"]).strip()
        trace = "".join(one[0] for one in frames) + f"{message}\n"
        message = message.removeprefix(f"{kind}: ")
        line = f"{Path(frames[-1]['file']).name}:{frames[-1]['line']}" if frames else ""
    return Failure(
        kind=kind,
        message=message,
        traceback=trace,
        field=getattr(error, FIELD),
        line=line or Path(place).name,
    )


def own_line(error: BaseException, place: str = "") -> str:
    """The innermost line of the user's that an error came from; a library's where her workload is in it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    library = library_of(place)
    own = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if is_own(one.filename) and library_of(one.filename) in ("", library)
    ]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def own_traceback(error: BaseException) -> str:
    """As Python prints it, without its first line and without frames of trainlab, torch and Python."""
    told = traceback.TracebackException.from_exception(error)
    pending = [told]
    while pending:
        one = pending.pop()
        own = [frame for frame in one.stack if is_own(frame.filename)]
        one.stack = traceback.StackSummary.from_list(own)
        pending += filter(None, (one.__context__, one.__cause__))
    lines = list(told.format())
    return cut_lines("".join(lines[lines[0].startswith("Traceback") :]))


def told_place(place: str) -> str:
    """`file.py:12: ` for the beginning of an error line; empty where there is no place."""
    return f"{Path(place).name}: " if place else ""


def gave(value: object) -> str:
    """What a function returned, in words."""
    return "None (is `return` missing?)" if value is None else type(value).__name__


def is_own(file: str) -> bool:
    """Whether a file is the user's, or of a library that she uses beside torch."""
    path, (of_torch, of_python) = Path(file), _folders_of_torch_and_python()
    if file.startswith("<frozen ") or any(map(path.is_relative_to, (OURS, *of_torch))):
        return False
    return bool(library_of(file)) or not any(map(path.is_relative_to, of_python))


def library_of(file: str) -> str:
    """`torchmetrics` for a file of an installed package; empty for any other."""
    parts = Path(file).parts
    homes = [n for n, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    return parts[homes[-1] + 1].partition(".py")[0] if homes else ""


def _is_ours(trace: TracebackType) -> bool:
    """Whether the error came from trainlab itself, called by the user's code: say, from what watches it."""
    if trace.tb_next is None:
        return False
    *_, (frame, _) = traceback.walk_tb(trace)
    path = Path(frame.f_code.co_filename)
    return path.is_relative_to(OURS) and not any(map(path.is_relative_to, OF_WORKLOADS))


def _layer_of(trace: TracebackType) -> str:
    """`fc.0 (Linear)`: the innermost layer of the model that ran; empty where it was the model itself."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    selves = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(trace)]
    layers = [one for one in selves if isinstance(one, torch.nn.Module)]
    # Without its set-up, for want of super().__init__(), a model cannot list its layers.
    if len(layers) < 2 or "_modules" not in vars(layers[0]):
        return ""
    names = {id(layer): name for name, layer in layers[0].named_modules()}
    name = names.get(id(layers[-1]))
    return f"{name} ({type(layers[-1]).__name__})" if name else ""


@cache
def _folders_of_torch_and_python() -> tuple[list[Path], set[Path]]:
    spec = find_spec("torch")
    of_torch = [Path(spec.origin).parent] if spec is not None and spec.origin else []
    return of_torch, {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}


HINTS = {
    r"Expected more than 1 value per channel": "a batch of one sample has no spread for batch norm; "
    "leave a last batch of one out with Dataset(…, drop_last=True), or use another batch size",
    r"shapes cannot be multiplied|size of tensor a|to have \d+ channels|same size"
    r"|doesn't match": "shapes do not fit; print the shape of what goes into this layer, or see "
    "trainlab probes",
    r"Target -?\d+ is out of bounds|class \d+|cur_target": "targets must be class numbers from 0 to "
    "one less than the model has outputs",
    r"multi-target not supported": "cross-entropy takes one class number per sample; make targets of "
    "shape (n, 1) flat with .squeeze(1), or those of one column per class float",
    r"before Module\.__init__\(\) call": "the model does not call super().__init__(); make that the "
    "first line of its __init__",
    r"must be Tensor, not NoneType|'NoneType' object (has no attribute|is not)": "None came where a "
    "value is due; a function without `return` gives None",
    r"takes (from )?\d+ .*positional arguments? .*but \d+ (was|were) given": "the function takes fewer "
    "than it is given; loss and metrics get (outputs, targets), step gets (model, batch), optimizer "
    "(model, settings)",
    r"same dtype|scalar type (Double|Float) but found|Found dtype (Double|Float)|dtype.*Double": ""
    "numbers of different types meet; make data and model float32, with .float()",
    r"expected target dtype|expected scalar type Long|nll_loss.*not implemented"
    r"|must be Long|expected floating point": "class numbers must be of type int64; make the targets "
    "so with .long()",
    r"does not require grad and does not have a grad_fn": "the loss has no gradient; it was detached, "
    "or made of numbers, or all parameters are frozen",
    r"leaf Variable that requires grad": "a parameter is changed in place; do so under "
    "torch.no_grad(), or work on a clone of it",
    r"modified by an inplace operation": "a tensor that the backward pass needs was changed in place; "
    "use x = x + 1, not x += 1",
    r"backward through the graph a second time": "a graph of an earlier step is used again; detach "
    "what is kept from step to step",
    r"on the same device|not on the expected device|Expected.*device type"
    r"|device type .* but got": "tensors of two devices meet; make new ones on the device of the "
    "inputs, and register those that the model keeps as buffers",
    r"index out of range in self": "an embedding was asked for a number that it does not have; make "
    "num_embeddings larger",
    r"missing \d+ required (positional|keyword-only) argument": "give the parameter a default in your "
    "function, or, of a model, set it with --model NAME=VALUE",
    r"circular import": "two files import each other; move what both need into a third",
    r"No module named '(?P<name>[\w.]+)'": "install {name} where trainlab is installed, or put its "
    "file beside this one",
    r"(tuple|dict|list)' object has no attribute|must be Tensor, not (tuple|dict|list)": "a tensor is "
    "due, and something that holds tensors came; take the part that is meant",
    r"stack expects each tensor to be equal size|default_collate": "samples cannot be put together; "
    "give all the same shape and type, or a collate_fn",
}
"""What errors of torch and Python that people meet often say, and what to do; the first that fits."""


def hint_for(message: str) -> str | None:
    """What to do about an error with this message, where that is known."""
    for pattern, hint in HINTS.items():
        if match := re.search(pattern, message, re.DOTALL):
            return hint.format(**match.groupdict())
    return None
