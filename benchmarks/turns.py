"""Whether taking turns changes what is measured: a process between turns of another, and undisturbed.

    python -m benchmarks.turns [--device cuda] [--blocks 20]

Two fresh processes of mnist-cnn stand ready. In each block one of them takes turns with the other, and then
as many without a pause; both halves meet the same machine. Bound: the 95% interval of the median ratio of
the two lies within ±2%.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.pairs import verdict
from trainlab.execute import launch
from trainlab.execute.attempt import new_token
from trainlab.execute.launch import Job, WorkerProcess
from trainlab.execute.planned_run import start_run
from trainlab.machine.environment import capture
from trainlab.plan import plan
from trainlab.resolve import resolve
from trainlab.spec.question import checked_question
from trainlab.workloads.reference import BUILTIN

TURNS = 4
"""Of each half of a block; the first of an undisturbed half comes after a turn of the other."""


def ratios(folder: Path, device: str, sizes: tuple[int, int], blocks: int) -> list[float]:
    """Turns with another process between them over turns without, by block, of the first size."""
    values = {
        "workload": "mnist-cnn",
        "settings": {"data": "bundled", "device": device},
        "vary": {"batch_size": list(sizes)},
        "cost": {"processes": 1},
        "learn": False,
    }
    study = resolve(checked_question(values), BUILTIN["mnist-cnn"])
    run = start_run(study, folder)
    here = Path.cwd()
    environment = run.write_environment(capture(here))
    job = Job(run.path.absolute(), environment, here, token=new_token())
    groups = [group for group in plan(study) if group.bench and not group.trials[0].again]
    processes = [WorkerProcess(group, replace(job, trials=group.ids)) for group in groups]
    try:
        watched, other = (process.seats()[0] for process in processes)
        for seat in (watched, other):
            seat.warm_up()
        found = []
        for block in range(blocks):
            between, alone = [], []
            for turn in range(TURNS):
                other.turn(block * TURNS + turn + 1)
                between.append(watched.turn(block * TURNS + turn + 1) or 0.0)
            for turn in range(TURNS):
                alone.append(watched.turn(block * TURNS + turn + 1) or 0.0)
            found.append(statistics.median(between) / statistics.median(alone))
    finally:
        for process in processes:
            process.kill()
        launch.close()
    return found


def main() -> None:
    """Prints each ratio with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=20)
    given = parser.parse_args()
    held = []
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    for sizes in ((1, 64), (16, 64), (64, 16)):
        with TemporaryDirectory() as folder:
            found = ratios(Path(folder) / "run", given.device, sizes, given.blocks)
        text, good = verdict(found, -0.02, 0.02)
        held.append(good)
        print(f"batch {sizes[0]} beside batch {sizes[1]}: turns over no turns {text}", flush=True)
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
