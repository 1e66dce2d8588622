"""inline: every group in this process, one after the other. What ran here before may influence a cost."""

from collections.abc import Sequence
from contextlib import closing
from itertools import chain, groupby
from pathlib import Path

import torch

from trainlab.execute.attempt import EventWriter
from trainlab.execute.bench import TimedTrial, run_benches, run_seats
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import preflight
from trainlab.execute.worker import run_group
from trainlab.machine.host import capture
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event
from trainlab.spec import Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.train.callbacks import Instrument
from trainlab.train.loader import Loader


class InlineExecutor:
    """Workloads and instruments may be objects here: nothing leaves the process."""

    def __init__(self, load: Loader, instruments: Sequence[Instrument] = ()) -> None:
        self._load, self._instruments = load, instruments

    def facts(self, workload: str) -> WorkloadFacts:
        return self._load.workload(workload).facts

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return preflight(study, self._load, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        study = run.study().to_study(str(run.study_file))
        with closing(EventWriter(run)) as events:

            def run_bench(members: Sequence[Group]) -> None:
                self._run_bench(run, members, environment, events)

            for is_timed, some in groupby(groups, lambda group: group.bench is not None):
                if is_timed:
                    run_benches(run, study, list(some), run_bench, is_over)
                    continue
                for group in some:
                    if is_over():
                        return
                    events.write(Event(kind="group_begins", trials=group.ids))
                    run_group(run, group.ids, environment, self._load, self._instruments)
                    events.write(Event(kind="group_ends", trials=group.ids))

    def close(self) -> None:
        """Nothing is kept."""

    def _run_bench(
        self, run: RunFolder, groups: Sequence[Group], environment: str, events: EventWriter
    ) -> None:
        spec, trial_ids = groups[0].trials[0].cost, tuple(chain(*(group.ids for group in groups)))
        assert spec is not None
        seats = [TimedTrial(run, trial_id, environment, self._load) for trial_id in trial_ids]
        events.write(Event(kind="group_begins", trials=trial_ids))
        threads = torch.get_num_threads()
        try:
            run_seats(
                seats,
                spec,
                groups[0].bench or "",
                lambda share: events.write(
                    Event(kind="progress", trials=trial_ids[:1], share=share)
                ),
            )
        finally:
            torch.set_num_threads(threads)
            for seat in seats:
                seat.abandon()
        events.write(Event(kind="group_ends", trials=trial_ids))
