"""Options that are wrong: one line that says where, what, the rule and the remedy, before torch starts."""

import shlex
from pathlib import Path

from torchless import Torchless

OPTIONS = [
    # values of every type and range
    ("--epochs 0", "--epochs: got '0', must be greater than 0"),
    ("--epochs 1.5", "--epochs: got '1.5', must be a whole number"),
    ("--lr x", "--lr: got 'x', must be a number"),
    ("--lr nan", "--lr: got 'nan', must be a finite number"),
    ("--lr", "--lr: got no value, needs one; see `trainlab run --help`"),
    ("--weight-decay -1", "--weight-decay: got '-1', must be at least 0"),
    ("--optimizer sgd --momentum 1", "--momentum: got '1', must be less than 1"),
    ("--model hidden", "--model: got 'hidden', must be name=value pairs"),
    ("--batch-size 1,,16", "--batch-size: got '1,,16', which has an empty level"),
    ("--zero-grad=maybe", "--zero-grad: got 'maybe', must be true or false"),
    ("--seed -1", "--seed: got '-1', must be whole numbers from 0, as in 1 or 1,2,3"),
    ("--seed 1,1", "--seed: got 1 twice, seeds must differ"),
    ("--budget 10", "--budget: got '10', which has no unit; write 10s, 10m or 10h"),
    ("--budget soon", "--budget: got 'soon', must be a time, as in 90s, 10m or 2h"),
    ("--lang fr", "--lang: got 'fr', must be one of en, zh"),
    ("--on mars", "--on: got 'mars', must be one of local, inline, processes"),
    ("--jobs many", "--jobs: got 'many', must be auto or a whole number from 1"),
    ("--yes=1", "--yes: takes no value; write --yes alone"),
    ("--optimizer-options beta1=2", "--optimizer-options beta1: got 2, must be at least 0 and l"),
    ("--optimizer-options amsgrad=3", "amsgrad: got 3, must be true or false"),
    # choices, with the one that was meant
    ("--optimizer adamm", "must be one of adadelta, sgd, adam, adamw, rmsprop, adagrad; did you"),
    ("--device gpu", "--device: got 'gpu', must be auto, cpu, mps, cuda or cuda:N; did you mean"),
    ("--data bundeled", "--data: got 'bundeled', must be full, bundled, auto or a folder; did you"),
    # names that are not known
    ("--batchsize 3", "--batchsize: no such option; did you mean --batch-size?"),
    ("--learning-rate 3", "--learning-rate: no such option; did you mean --lr?"),
    ("--vary learning_rate=0.1,0.2", "--vary learning_rate: unknown factor; did you mean lr?"),
    ("--vary seed=1,2", "--vary seed: is no factor; give seeds apart"),
    ("--optimizer-options bta1=0.5", "it has amsgrad, beta1, beta2, eps; did you mean beta1?"),
    ("extra", "run: got 'extra', one word too many; options begin with --; see `trainlab run"),
    # contradictions
    ("--lr-gamma 0.5", "--lr-gamma: is for the step schedule, but the schedule is none; add sch"),
    ("--lr 0.1,1 --vary lr=0.1,0.01", "--lr and --vary lr: give its levels once"),
    ("--vary lr=0.1 --vary lr=0.2", "--vary: got lr twice; give all its levels at once"),
    ("--vary lr=0.1,0.1", "--vary lr: got 0.1 twice, levels must differ"),
    ("--vary lr=", "--vary lr: got no levels, must be at least one"),
    ("--momentum 0.9", "--momentum: adam takes none; optimizers that do: sgd, rmsprop"),
    ("--optimizer sgd --optimizer-options nesterov=true", "nesterov: needs momentum; add momentum"),
    ("--seed 1 --seeds 2", "--seed and --seeds: give one of them"),
    ("--max-seeds 30", "--max-seeds: is for --until-decided; for a fixed number use --seeds"),
    ("--until-decided", "--until-decided: there is nothing to compare; vary a setting"),
    ("--until-decided --max-seeds 2 --lr 0.1,1", "--max-seeds: got 2, must be 3 or more"),
    ("--processes 3", "--processes: is about measuring cost; add --profile, or train with sever"),
    ("--profile --processes 5 --max-processes 2", "--max-processes: got 2, must be 5 or more"),
    # more than there is
    ("--threads 100000", "--threads: got 100000, but this machine has "),
    ("--data .", "is not a folder with Fashion-MNIST"),
    ("--out taken", "taken: is not empty; choose another --out"),
    ("--out file.txt", "file.txt: cannot be written: file.txt is a file; choose another --out"),
]


def test_a_wrong_option_is_one_line_without_torch_and_without_a_folder(
    torchless: Torchless, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").touch()
    (tmp_path / "file.txt").touch()
    for options, told in OPTIONS:
        torchless.refusal(["run", "fashion-mlp", *shlex.split(options)], told, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"taken", "file.txt"}


VERBS = [
    ("rnu fashion-mlp", "rnu: no such verb; did you mean run?"),
    ("--seeds 3 run fashion-mlp", "--seeds: options stand after the verb; see `trainlab --help`"),
    ("run", "run: WORKLOAD|STUDY: is required; see `trainlab run --help`"),
    ("watch own.py --metric acc=(", "--metric acc: got '(', which is no regular expression: "),
    (
        "watch own.py --metric-file acc=log.csv",
        "--metric-file acc: got 'log.csv', must be FILE:COL",
    ),
    ("run fashion-lb", "fashion-lb: no such workload or study; did you mean fashion-lab?"),
    ("run ''", "workload '' is not known; built in: mnist-cnn, fashion-mlp"),
    ("run nowhere.toml", "nowhere.toml: cannot be read: No such file"),
    ("run nowhere.py:x", "nowhere.py: no such file; name one that has a trainlab.Workload"),
    ("run own.py", "own.py: has no workload; write one, as NAME = trainlab.Workload(…)"),
    ("run own.py:", "or name what makes it: own.py:NAME"),
    ("run two.py", "workload 'two.py': which one? Write one of two.py:first, two.py:second"),
    ("run broken.py:work", "broken.py:1: SyntaxError"),
    ("profile mnist-lab", "mnist-lab: is a study; run it with `trainlab run mnist-lab`"),
    ("profile fashion-mlp --weights trained", "--weights: got trained, but nothing is trained h"),
    ("probes fashion-mlp --batch-size 1,2", "got several levels, but layers are listed for one"),
    ("studies --schem", "--schem: no such option; did you mean --schema?"),
    ("data lst", "lst: no such verb; did you mean list?"),
    ("data fetch --source nowhere", "--source: got 'nowhere', must be one of auto, mirror, pack"),
    ("show .", ".: is no run folder: it has no study.json; name one that `trainlab run` has made"),
    ("compare nowhere .", "nowhere: no such folder"),
    ("reproduce fashon-lab", "fashon-lab: has no published figures; fashion-lab, mnist-lab have"),
    ("reproduce fashion-lab --run . --seeds 3", "--seeds: is for a new run; leave it out beside"),
    ("reproduce fashion-lab --seeds 1", "--seeds: got '1', must be at least 2"),
    # what is typed is not blamed on the study
    ("run mnist-lab --epochs 0", "trainlab: --epochs: got '0', must be greater than 0"),
    ("board nowhere", "nowhere: no such folder; name a run folder"),
    ("board .", ".: has no TensorBoard event files"),
    ("board . --port 70000", "--port: got '70000', must be at most 65535"),
]


def test_a_wrong_command_line_is_one_line_without_torch(
    torchless: Torchless, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("import torch\nwork = torch.nope\n")
    (tmp_path / "two.py").write_text("first = Workload()\nsecond = Workload()\n")
    (tmp_path / "broken.py").write_text("a b\n")
    for line, told in VERBS:
        torchless.refusal(shlex.split(line), told, tmp_path)


def test_what_is_right_is_not_refused(torchless: Torchless, tmp_path: Path) -> None:
    for options in (
        *("--no-zero-grad", "--zero-grad", "--zero-grad false", "--zero-grad true,false"),
        *("--profile --by-shape", "--profile --no-by-shape", "--profile --processes 20"),
        "--no-until-decided --no-save-model --no-profile --no-tensorboard",
        "--lr 0.1 --vary lr=0.2,0.3 --design one-at-a-time",
        *("--schedule step --lr-gamma 0.5", "--vary schedule=none,step --lr-gamma 0.5"),
        *("--batch-size 6000 --data bundled", "--budget 90s"),
    ):
        words = ["run", "--dry-run", *options.split(), "fashion-mlp"]
        answer = torchless.ask(words, tmp_path)
        assert (answer.code, answer.stderr, answer.imported_torch) == (0, "", False), options
