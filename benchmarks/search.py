"""Whether a search ends honestly, and what it costs beside Optuna around the sample script.

    python -m benchmarks.search --simulated 1000
    python -m benchmarks.search [--pairs 20] [--settings 60] [--device cpu] [--third weight_decay]

Simulated: searches of 30 settings in a space whose truth is known, scores with the noise of seeds, the
best three and the base confirmed with five seeds. The 95% interval of the winner's mean must hold the truth
in 94 to 96%; "better than the base", where no setting is, must be said in at most 5%.

Real: fashion-mlp (learning rate, optimizer, hidden; or weight decay in place of hidden, so that all
settings are one program), the same number of settings by Optuna's TPE and median pruner around the sample
script's loop, in turn. Regret: the best accuracy that any of both found over all pairs, less that of the
search's pick, trained with five other seeds on the test set. Optuna takes at least twice as long on two
cores, 20 times on an H200.
"""

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from trainlab.analysis.search import Tried, ranked
from trainlab.lab.searching import proposed
from trainlab.spec.search import Levels, SearchSpec, dimension_of
from trainlab.stats.contrasts import compare_cells, pair_rows
from trainlab.stats.means import mean_of

SPACE = {"lr": "1e-5..1e-1", "optimizer": "adam,sgd", "hidden": "32..512"}
DECAY = {"weight_decay": "1e-6..1e-2"}
"""In place of hidden."""
SIZE, CONFIRMED, SEEDS = 30, 3, 5


def spec(**values: object) -> SearchSpec:
    given = {"vary": {}, "metric": "val/accuracy", "is_lower_better": False}
    dimensions = tuple(dimension_of(name, space) for name, space in SPACE.items())
    return SearchSpec.model_validate(
        {**given, "dimensions": dimensions, "defaults": {}, "asked": {}, **values}
    )


def truth(levels: Levels, effect: float) -> float:
    """A hill in the logarithm of the rate, higher for adam; nothing at all without effect."""
    rate, hidden = math.log10(float(levels["lr"])), math.log2(float(levels["hidden"]))
    hill = -((rate + 3.0 - (levels["optimizer"] == "sgd")) ** 2) / 4
    return 0.8 + effect * (hill + 0.02 * hidden - 0.05 * (levels["optimizer"] == "sgd"))


BASE: Levels = {"lr": 1e-3, "optimizer": "adam", "hidden": 128}


def simulated(
    draws: random.Random, effect: float, noise: float, sampler: str
) -> tuple[bool, bool, float]:
    """Whether the winner's interval holds the truth, whether it is called better than the base without
    being so, and by how much its score was too good."""
    search = spec(sampler=sampler, draw=draws.randrange(10**9))
    tried = list[Tried]()
    while len(tried) < SIZE:
        for levels in proposed(search, tried, min(5, SIZE - len(tried))):
            score = truth(levels, effect) + draws.gauss(0, noise)
            tried.append(Tried(str(len(tried)), levels, (score,), True))
    best = ranked(tried, search)[:CONFIRMED]
    cells = [BASE, *(one.levels for one in best)]
    values = np.array(
        [[truth(one, effect) + draws.gauss(0, noise) for _ in range(SEEDS)] for one in cells]
    )
    pairs = [(a, b) for a in range(len(cells)) for b in range(a + 1, len(cells))]
    family = compare_cells(values, pair_rows(pairs, len(cells)))
    is_wrong = any(
        family.p[place] <= 0.05
        and family.estimates.value[place] > 0
        and truth(cells[b], effect) <= truth(BASE, effect)
        for place, (a, b) in enumerate(pairs)
        if a == 0
    )
    winner = mean_of(values[1].tolist())
    assert winner is not None
    assert winner.interval is not None
    own = truth(best[0].levels, effect)
    return winner.interval.contains(own), is_wrong, best[0].score - winner.value


def simulate(number: int) -> bool:
    holds = True
    for name, effect in (("nothing differs", 0.0), ("a hill", 0.1)):
        draws = random.Random(name)  # noqa: S311
        found = [
            simulated(draws, effect, 0.01, "random" if n % 4 else "tpe") for n in range(number)
        ]
        covered = statistics.fmean(one[0] for one in found)
        wrong = statistics.fmean(one[1] for one in found)
        optimism = statistics.fmean(one[2] for one in found)
        # Within what so many searches can tell.
        slack = 2 * math.sqrt(0.05 * 0.95 / number)
        is_fine = 0.94 - slack <= covered <= 0.96 + slack and wrong <= 0.05 + slack
        holds &= is_fine
        print(f"{name}, {number} searches: the winner's interval holds the truth in {covered:.1%},")
        print(
            f"  'beats the base' is wrong in {wrong:.1%}, the search's own best too good by",
            end=" ",
        )
        print(f"{optimism / 0.01:.2f} standard deviations of a seed", end="   ")
        print("ok" if is_fine else "NOT MET", flush=True)
    return holds


# Beside Optuna.

SCRIPT = """
import sys, time
import optuna, torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainlab.data.dataset import Split
from trainlab.workloads.reference import BUILTIN
from trainlab.train.loader import Loader

number, epochs, device, seed = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
optuna.logging.set_verbosity(optuna.logging.ERROR)
data = Loader().workload("fashion-mlp").dataset(sys.argv[5]).train
x, y = data.inputs.float().flatten(1) / 255 * 2 - 1, data.targets
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
held = len(x) // 10
train = TensorDataset(x[order[held:]], y[order[held:]])
val = x[order[:held]].to(device), y[order[:held]].to(device)

def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    kind = trial.suggest_categorical("optimizer", ["adam", "sgd"])
    hidden, decay = 128, 0.0
    if sys.argv[6] == "hidden":
        hidden = trial.suggest_int("hidden", 32, 512)
    else:
        decay = trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10)).to(device)
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[kind]
    optimizer = optimizer(model.parameters(), lr, weight_decay=decay)
    for epoch in range(epochs):
        for inputs, targets in DataLoader(train, batch_size=32, shuffle=True):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(val[0]).argmax(1) == val[1]).float().mean().item()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy

study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed),
                            pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=number)
print(*(f"{n}={v}" for n, v in study.best_params.items()))
"""


def timed(command: list[str], **given: object) -> tuple[float, str]:
    begun = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True, **given)  # type: ignore[call-overload]
    return time.monotonic() - begun, done.stdout


def beside_optuna(
    pairs: int, settings: int, epochs: int, data: str, device: str, third: str
) -> bool:
    """Both searches in turn; then all picks together, each with five other seeds."""
    import trainlab

    home, ratios, picks = Path(tempfile.mkdtemp()), list[float](), list[tuple[Levels, Levels]]()
    script = home / "sample.py"
    script.write_text(SCRIPT)
    searched = SPACE if third == "hidden" else {n: SPACE[n] for n in ("lr", "optimizer")} | DECAY
    vary = [word for name, space in searched.items() for word in ("--vary", f"{name}={space}")]
    for pair in range(pairs):
        run = home / f"run-{pair}"
        ours = [sys.executable, "-m", "trainlab", "search", "fashion-mlp", *vary, "--no-report"]
        ours += [f"--settings={settings}", f"--epochs={epochs}", f"--data={data}", f"--out={run}"]
        ours += [f"--draw={pair}", f"--device={device}", "--seeds=1", "--confirm=1", "--quiet"]
        theirs = [sys.executable, str(script), str(settings), str(epochs), device, str(pair), data]
        theirs.append(third)
        told: dict[bool, tuple[float, str]] = {}
        for is_ours in (True, False) if pair % 2 else (False, True):
            told[is_ours] = timed(ours if is_ours else theirs)
        ratios.append(told[False][0] / told[True][0])
        cells = trainlab.open_run(run).study().to_study("study.json").all_cells
        found = dict(word.split("=") for word in told[False][1].split())
        own = {name.removeprefix("model."): level for name, level in cells[-1].levels.items()}
        other: Levels = {
            "lr": float(found["lr"]),
            "optimizer": found["optimizer"],
            third: float(found[third]) if third == "weight_decay" else int(found[third]),
        }
        picks.append((own, other))
        print(
            f"pair {pair}: ours {told[True][0]:.1f} s {own}; Optuna {told[False][0]:.1f} s {other}",
            flush=True,
        )
    cells = [pick for both in picks for pick in both]
    scores = []
    for cell in cells:
        named = {n: v for n, v in cell.items() if n != "hidden"}
        if "hidden" in cell:
            named["model"] = {"hidden": cell["hidden"]}
        run = trainlab.run(
            "fashion-mlp",
            seeds=[11, 12, 13, 14, 15],
            data=data,
            epochs=epochs,
            device=device,
            out=home / f"pick-{len(scores)}",
            **named,
        )
        scores.append(float(run.results()["test/accuracy"].mean()))
    best = max(scores)
    regrets = [[best - score for score in scores[place::2]] for place in (0, 1)]
    ours_better = [a - b for a, b in zip(*regrets, strict=True)]
    half = 2.1 * statistics.stdev(ours_better) / math.sqrt(pairs) if pairs > 1 else math.nan
    least = 20.0 if device.startswith("cuda") else 2.0
    middle = statistics.median(ratios)
    print(
        f"regret: ours {statistics.fmean(regrets[0]):.4f}, Optuna {statistics.fmean(regrets[1]):.4f}, "
        f"difference {statistics.fmean(ours_better):+.4f} ± {half:.4f}"
    )
    print(
        f"wall time: Optuna takes {middle:.2f} times as long ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"at least {least:g}   {'ok' if middle >= least else 'NOT MET'}"
    )
    return middle >= least and statistics.fmean(ours_better) - half <= 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--settings", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data", default="bundled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--third", choices=("hidden", "weight_decay"), default="hidden")
    asked = parser.parse_args()
    os.environ.setdefault("TRAINLAB_OFFLINE", "1")
    if asked.simulated:
        sys.exit(not simulate(asked.simulated))
    given = asked.pairs, asked.settings, asked.epochs, asked.data, asked.device, asked.third
    sys.exit(not beside_optuna(*given))


if __name__ == "__main__":
    main()
