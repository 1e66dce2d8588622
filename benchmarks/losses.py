"""A fingerprint of the losses of both labs: the same before and after a change that only moves code.

    python -m benchmarks.losses

Every curve is written without its times and hashed. Rounding differs between machines, so a fingerprint
is compared with one made on the same machine; two runs in a row must agree.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import trainlab

STUDIES = {
    "mnist-lab": {
        "workload": "mnist-cnn",
        "vary": {"batch_size": [1, 16, 64]},
        "seeds": 1,
        "epochs": 1,
    },
    "fashion-lab": {
        "workload": "fashion-mlp",
        "vary": {"batch_size": [16, 64], "lr": [0.01, 0.0001], "zero_grad": [False]},
        "design": "one-at-a-time",
        "cells": [{"optimizer": "sgd", "lr": 0.001}],
        "seeds": 2,
        "epochs": 2,
        "probes": ["relu:grad_input:sq_sum", "relu:local_grad:sq_sum", "*.weight:grad:norm@100"],
    },
}


def main() -> None:
    """Trains the cells of both labs on the bundled data and prints a line per study and one for all."""
    whole = hashlib.sha256()
    for name, asked in STUDIES.items():
        with tempfile.TemporaryDirectory() as folder:
            run = trainlab.run(
                **asked, out=Path(folder) / name, data="bundled", device="cpu", threads=1
            )
            curves = sorted(Path(run.path).glob("trials/*/curve.jsonl"))
            lines = [line for path in curves for line in path.read_text().splitlines()]
        text = "\n".join(map(without_times, lines))
        digest = hashlib.sha256(text.encode())
        whole.update(digest.digest())
        print(f"{name}: {len(curves)} curves, {len(lines):,} points: {digest.hexdigest()[:16]}")
    print(f"all: {whole.hexdigest()[:16]}")


def without_times(line: str) -> str:
    """A point of a curve without what differs from run to run."""
    return json.dumps({n: v for n, v in json.loads(line).items() if not n.endswith("_s")})


if __name__ == "__main__":
    main()
