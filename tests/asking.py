"""Questions answered as far as a run would, without running it."""

from typing import Any

from trainlab.execute.preflight import preflight
from trainlab.plan import Group, plan
from trainlab.record.run_folder import RunFolder
from trainlab.resolve import asks_each_device, resolve
from trainlab.spec import Question, Study
from trainlab.spec.question import checked_question
from trainlab.train.loader import Loader


def study_for(question: Question, where: str = "", *, many: bool = False) -> Study:
    """The study, checked against its workload and this machine."""
    load = Loader()
    facts = load.workload(question.workload).facts
    study = resolve(question, facts, where, many=many)
    devices = preflight(study, load, each_device=asks_each_device(question))
    return resolve(question, facts, where, devices=devices, many=many)


def study_of(workload: str, settings: dict[str, Any], **fields: Any) -> Study:
    """The same from its parts."""
    values = {"workload": workload, "settings": settings, **fields}
    return study_for(checked_question(values))


def curves(run: RunFolder) -> dict[str, list[dict[str, Any]]]:
    """Of learn trials, by id, without times: what must be the same wherever and however often they run."""
    return {
        trial.id: [
            {name: value for name, value in line.items() if not name.endswith("_s")}
            for line in run.trial(trial.id).curve()
        ]
        for trial in run.trials()
        if trial.kind == "learn"
    }


def groups_of(run: RunFolder) -> tuple[Group, ...]:
    """What a started run has planned."""
    return plan(run.study().to_study("study.json"))
