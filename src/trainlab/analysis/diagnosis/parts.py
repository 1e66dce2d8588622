"""Where the time of an update goes, everything included."""

import statistics

from trainlab.record.scripts.watched import WatchedRecord

FIRST_STEPS = 5
"""What they take is start-up."""
BETWEEN = ("other", "prepare")


def update_parts_ms(record: WatchedRecord) -> dict[str, float]:
    """Milliseconds of an update by part, tests included; what lies between torch's calls is `logging`,
    where something was written, or `between`. Empty where no update was seen."""
    later = [place for place, step in enumerate(record.steps) if step > FIRST_STEPS]
    if not later:
        return {}
    parts = {
        name: statistics.fmean(values[place] for place in later)
        for name, values in record.steps_ms.items()
    }
    between_ms = sum(parts.pop(name, 0.0) for name in BETWEEN)
    share = _logging_share(record)
    parts["between"] = (1 - share) * between_ms
    parts["logging"] = share * between_ms
    parts["evaluation"] = 1e3 * record.parts_s.get("evaluation", 0.0) / record.num_steps
    return {name: ms for name, ms in parts.items() if ms > 0}


def _logging_share(record: WatchedRecord) -> float:
    """Of what lies between calls, by samples of the script's stack."""
    writing = record.samples.get("logging", 0)
    both = writing + sum(record.samples.get(name, 0) for name in BETWEEN)
    return writing / both if both else 0.0
