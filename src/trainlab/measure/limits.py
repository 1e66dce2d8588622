"""What this machine can do at best, measured in a second or two and kept in the user's cache."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import psutil
import torch

from trainlab.errors import RecordError
from trainlab.machine.device import free_bytes
from trainlab.machine.host import cache_folder, cpu_model, usable_vcpus
from trainlab.machine.load import LoadMeter
from trainlab.measure.steps import Stopwatch
from trainlab.record.cost_record import LimitsRecord
from trainlab.record.files import make_folder, read_json, write_json
from trainlab.record.schema import FORMAT, note

CPU_SIZES: tuple[int, ...] = (256, 512, 1024, 2048)
GPU_SIZES = (4096, 5120, 6144, 8192, 12288)
"""Rows and columns of the square matrices multiplied, the cheapest first."""

BUDGET_S = 0.7
"""For one precision, or for the copy. A size that would not fit is left out: without hardware for
bf16, a product of 2048 takes ten seconds."""

CPU_COPY_BYTES = 256 * 2**20
GPU_COPY_BYTES = 2**30

BUSY_CORES = 0.2
"""Other processes using more than this may have slowed a measurement down."""

KEPT_BUSY = timedelta(minutes=10)
"""What was measured meanwhile serves the other trials of a run, not those of the next day."""

MIN_CALLS = 2
MAX_CALLS = 50
TOGETHER_S = 0.005
PAUSE_S = 1.0
"""A GPU's rest before it is to show its best."""
SHARE_OF_TIME = 4
"""A size takes one in so many parts of the time left, so that larger ones get their turn."""

Work = Callable[[], object]


def measured_limits(device: torch.device) -> LimitsRecord:
    """This machine's limits from the cache, or measured now where there are none there that can be read;
    those of a busy machine are kept for KEPT_BUSY, for the other trials of a run."""
    path = cache_folder() / "limits" / f"{cache_key(device)}.json"
    with suppress(RecordError, ValueError):
        known = LimitsRecord.model_validate(read_json(path))
        since = datetime.now(UTC) - KEPT_BUSY
        is_old = known.busy and datetime.fromisoformat(known.measured) < since
        if "fp32" in known.flops_per_s and not is_old:
            return known
    record = _measure(device)
    try:
        make_folder(path.parent)
        write_json(path, record.model_dump(mode="json"))
    except RecordError as error:
        record.notes.append(note("limits_not_kept", error=str(error)))
    return record


def cache_key(device: torch.device) -> str:
    """Differs where the limits may: device, threads, usable vCPUs, torch's build."""
    facts = FORMAT, _name(device), torch.get_num_threads(), torch.__version__, usable_vcpus()
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def product_flops(size: int) -> int:
    """Of two square matrices: a multiplication and an addition for each of size cubed."""
    return 2 * size**3


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


@torch.no_grad()
def _measure(device: torch.device) -> LimitsRecord:
    load = LoadMeter()
    flops_per_s, bytes_per_s = _best_products(device), _best_copy(device)
    others = load.read().others_cores
    busy = device.type == "cpu" and others > BUSY_CORES
    return LimitsRecord(
        device_name=_name(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="microseconds"),
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        busy=busy,
        notes=[note("limits_busy", cores=round(others, 1))] if busy else [],
    )


def _best_products(device: torch.device) -> dict[str, float]:
    is_gpu = device.type == "cuda"
    names, sizes = ["fp32", "bf16"], CPU_SIZES
    if is_gpu:
        # The fastest first, each after a pause: a GPU that has just worked hard runs at a lower clock.
        # Before Ampere (8.0) the flag for TF32 is accepted and changes nothing.
        has_tf32 = torch.cuda.get_device_capability(device) >= (8, 0)
        names, sizes = ["bf16", *(["tf32"] if has_tf32 else []), "fp32"], GPU_SIZES
    flops_per_s = {}
    for name in names:
        time.sleep(PAUSE_S if is_gpu else 0)
        with fp32_products_as("tf32" if name == "tf32" else "ieee"):
            dtype = torch.bfloat16 if name == "bf16" else torch.float32
            flops_per_s[name] = _best_product(device, dtype, sizes)
    return flops_per_s


@contextmanager
def fp32_products_as(precision: str) -> Iterator[None]:
    """Matrix products of fp32 on a GPU run as `ieee` or `tf32` in this block; then as before."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _best_product(device: torch.device, dtype: torch.dtype, sizes: Sequence[int]) -> float:
    """FLOP/s of the fastest product, over sizes and repeats."""
    # Numbers drawn apart from the trial's; zeros would save a GPU power and look too fast.
    draw = torch.Generator(device).manual_seed(0)
    best, deadline = 0.0, time.monotonic() + BUDGET_S
    for size in sizes:
        expected_s = product_flops(size) / best if best else 0.0
        if time.monotonic() + MIN_CALLS * expected_s > deadline:
            break
        a, b = (torch.randn(size, size, generator=draw, device=device).to(dtype) for _ in "ab")
        product = torch.empty_like(a)
        share_s = (deadline - time.monotonic()) / SHARE_OF_TIME
        fastest_s = _fastest_s(device, partial(torch.mm, a, b, out=product), share_s)
        best = max(best, product_flops(size) / fastest_s)
    return best


def _best_copy(device: torch.device) -> float:
    """Bytes/s of the fastest copy between buffers much larger than the caches."""
    free = free_bytes(device) or psutil.virtual_memory().available
    wanted = GPU_COPY_BYTES if device.type == "cuda" else CPU_COPY_BYTES
    # Ones, not zeros: a zeroed page that nobody wrote to takes no memory, so reading it is free.
    source = torch.ones(min(wanted, free // 8) // 4, device=device)
    target = torch.empty_like(source)
    fastest_s = _fastest_s(device, partial(target.copy_, source), BUDGET_S)
    return 2 * source.nbytes / fastest_s


def _fastest_s(device: torch.device, work: Work, budget_s: float) -> float:
    """The fastest of some calls after a first one, which pays for start-up; at least one."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        watch = Stopwatch(device)

        def calls_s(count: int, together: int = 1) -> list[float]:
            watch.mark("start")
            for _ in range(count):
                for _ in range(together):
                    work()
                watch.mark("calls")
            return [ms / 1e3 / together for _, ms in watch.laps_ms()]

        calls_s(1)
        (one_s,) = calls_s(1)
        # Several at a time on a GPU: what lies between two kernels is not their speed.
        together = max(1, int(TOGETHER_S / one_s)) if device.type == "cuda" else 1
        laps = min(int(budget_s / (one_s * together)), MAX_CALLS)
        return min([one_s, *calls_s(laps, together)])
