"""Trials that a driver left behind when it died."""

from trainlab.record.folder import RunFolder


def mark_interrupted(run: RunFolder) -> list[str]:
    """Trials that were running when their driver died are recorded as interrupted; their ids."""
    marked = []
    for trial_id in run.study().trials:
        folder = run.trial(trial_id)
        trial = folder.read()
        if trial.state == "running":
            folder.end(trial.model_copy(update={"state": "interrupted"}))
            marked.append(trial_id)
    return marked
