"""Trials that a driver left behind when it died."""

from trainlab.record.run_folder import RunFolder

BEFORE_THE_END = ("pending", "running")


def mark_interrupted(run: RunFolder) -> None:
    """Trials that were running when their driver died are recorded as interrupted; but those that trained
    together and had all come to their end get the records that were not written any more."""
    left = [one for one in run.study().trials if run.trial(one).read().state == "running"]
    ended = {trial_id: _ended(run, trial_id) for trial_id in left}
    for trial_id in left:
        folder, end = run.trial(trial_id), run.trial(trial_id).prepared_end()
        if ended[trial_id] and end is not None:
            folder.end(end[0])
            if end[0].is_finished:
                folder.remove_checkpoints()
        else:
            folder.end(folder.read().model_copy(update={"state": "interrupted"}))


def _ended(run: RunFolder, trial_id: str) -> bool:
    """Whether it and all that trained with it have come to their end, recorded or not."""
    end = run.trial(trial_id).prepared_end()
    return end is not None and all(_has_end(run, other) for other in end[1])


def _has_end(run: RunFolder, trial_id: str) -> bool:
    folder = run.trial(trial_id)
    return folder.read().state not in BEFORE_THE_END or folder.prepared_end() is not None
