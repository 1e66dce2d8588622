"""A group of trials in its checkpoints: what is saved of it, and how it goes on from there."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trainlab.record.schema import note
from trainlab.train.checkpoint.checkpoints import Checkpoints
from trainlab.train.checkpoint.python_state import has_extra_state, python_state
from trainlab.train.checkpoint.state import State, merged
from trainlab.train.ending import end_if_asked, is_asked_to_end
from trainlab.train.engines.engine import Member, Session
from trainlab.train.saved.fit import suits
from trainlab.train.saved.place import Place


class SavedGroup:
    """Opened before the first update."""

    def __init__(self, checkpoints: Checkpoints, group: Sequence[Member], session: Session) -> None:
        """The files of the members are put back as they were at the last checkpoint that fits, where there
        is one."""
        self._checkpoints = checkpoints
        self._found = checkpoints.newest(lambda state: suits(state, session, group))
        if checkpoints.were_unfit:
            for member in group:
                member.setup.notes.append(note("checkpoint_unfit"))
        self._models = [member.setup.model for member in group]
        self._python_state = python_state(self._models)
        if has_extra_state(self._models):
            checkpoints.give_up()
        if self._found is not None:
            checkpoints.put_back(self._found)

    def steps_before(self, number: int) -> int:
        """Updates of that member that are not made again."""
        return (
            0 if self._found is None else int(self._found.values["members"][number]["steps_done"])
        )

    def instruments(self, number: int) -> Sequence[Mapping[str, Any]]:
        """What was saved of those that watch that member."""
        return () if self._found is None else self._found.values["instruments"][number]

    def restored(self, session: Session, group: Sequence[Member]) -> tuple[Place, State | None]:
        """Where the group goes on, and the state of the session within that epoch."""
        if self._found is None:
            return Place(), None
        found, self._found = self._found, None
        session.restore(found)
        for member, told in zip(group, found.values["members"], strict=True):
            for name, value in told.items():
                setattr(member.progress, name, value)
        place = Place(**found.values["place"])
        return place, found if place.steps else None

    def save_if_due(self, session: Session, group: Sequence[Member], place: Place) -> None:
        """Makes a checkpoint where enough time has passed since the last one. One is made, too, where the
        process was asked to end: Interrupted then."""
        if is_asked_to_end() or self._checkpoints.is_due(at_epoch_end=place.steps == 0):
            self._save(session, group, place)
        end_if_asked()

    def _save(self, session: Session, group: Sequence[Member], place: Place) -> None:
        if not self._checkpoints.can_be_made:
            return
        if python_state(self._models) != self._python_state:
            self._checkpoints.give_up()
            return
        instruments = [member.moments.saved_state() for member in group]
        if None in instruments:
            return
        for member in group:
            if member.progress.state == "running":
                member.moments.flush()
        told = {
            "place": asdict(place),
            "members": [asdict(member.progress) for member in group],
            "instruments": instruments,
        }
        step = max(member.progress.steps_done for member in group)
        self._checkpoints.save(step, merged(session.state(), State({}, told)))
