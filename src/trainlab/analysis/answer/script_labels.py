"""How a script and its trials are called: by its command line, and by what was seen of it. The settings of
trainlab's own training mean nothing for a script."""

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from trainlab.analysis.answer.names import level_name
from trainlab.spec.cell import level_text
from trainlab.spec.script import ScriptSpec
from trainlab.spec.workload import AS_OBJECT
from trainlab.words import Words


def command_text(script: ScriptSpec) -> str:
    """The script with the arguments that all its trials have: `mnist.py --epochs 2`."""
    own = (
        ["-m", script.module]
        if script.module
        else [PurePath(script.path).name.removesuffix(AS_OBJECT)]
    )
    return shlex.join([*own, *script.arguments])


def seen_texts(seen: Mapping[str, Any], words: Words) -> list[str]:
    """What a trial was seen to use, in short: `CPU`, `2 threads`, `batch 64`, `Adadelta lr 1`."""
    texts = [level_name("device", seen["device"], words)] if "device" in seen else []
    if "threads" in seen:
        texts.append(words.counted("one_thread", "num_threads", seen["threads"]))
    if "batch_size" in seen:
        texts.append(words("batch_of", size=seen["batch_size"]))
    if "optimizer" in seen:
        lr = f" lr {level_text(seen['lr'])}" if "lr" in seen else ""
        texts.append(f"{seen['optimizer']}{lr}")
    if "parameters" in seen:
        texts.append(words("seen_parameters", number=f"{seen['parameters']:,}"))
    return texts
