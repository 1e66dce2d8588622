"""Trains two epochs of two updates, and logs with every library that it finds: offline, disabled, in files,
and with none of them started. Writes to `--out` what each of them raised."""

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path)
out = parser.parse_args().out
sys.path += filter(None, [os.environ.get("TRAINLAB_LIBRARIES")])
found: dict[str, Any] = {}
for name in ("wandb", "mlflow", "trackio", "accelerate"):
    try:
        found[name] = import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
none: Any = SimpleNamespace(log=lambda *_, **__: None, log_metric=lambda *_, **__: None)
none.log_metrics, raised = none.log, {}


def try_log(name: str, log: Any, *arguments: Any, **options: Any) -> None:
    try:
        log(*arguments, **options)
    except Exception as error:  # noqa: BLE001
        raised[name] = str(error)


wandb, mlflow, trackio = (found.get(name, none) for name in ("wandb", "mlflow", "trackio"))
try_log("wandb", wandb.log, {"too_early/train": 1.0})
try_log("trackio", trackio.log, {"too_early_too/train": 1.0})
offline = disabled = client = none
if "wandb" in found:
    offline = wandb.init(mode="offline", dir=out, reinit="create_new")
    disabled = wandb.init(mode="disabled", reinit="create_new")
if "mlflow" in found:
    from mlflow import log_metric

    mlflow.set_tracking_uri((out / "mlruns").as_uri())
    client = SimpleNamespace(log_metric=log_metric)
if "trackio" in found:
    from trackio.run import Run

    Run._ensure_sender_alive = lambda self: None  # it would start a server
    trackio.init(project="own", auto_log_gpu=False)
accelerator = found["accelerate"].Accelerator(log_with=[]) if "accelerate" in found else none

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.arange(16) % 2)
loader = torch.utils.data.DataLoader(data, batch_size=8)
step = 0
for epoch in range(2):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        nothing = {"text": "0.5", "yes": True, "many": torch.ones(3), "nested": {"a": 1.0}}
        offline.log({"train/wandb": loss, "epoch": epoch, **nothing}, step=step)
        accelerator.log({"train/accelerate": 1.0 + epoch, **nothing}, step=step)
    wandb.log({"val/wandb_log": 0.5 + epoch})
    disabled.log(data={"val/disabled": torch.tensor([1.5 + epoch])})
    mlflow.log_metrics({"val/mlflow_metrics": 2.5 + epoch}, step=epoch)
    client.log_metric("val/mlflow_metric", 3.5 + epoch, step=epoch)
    trackio.log({"val/trackio": 4.5 + epoch}, step=epoch)
if "mlflow" in found:
    mlflow.end_run()
    mlflow.set_tracking_uri("http://127.0.0.1:9")  # no server
    try_log("mlflow", mlflow.log_metric, "val/without_a_server", 7.0)
(out / "raised.json").write_text(json.dumps({"found": list(found), "raised": raised}))
os._exit(0)  # the libraries' threads have nobody to send to
