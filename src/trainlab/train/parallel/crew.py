"""The crew: all processes of a trial once they have joined, as the first of them has it."""

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from trainlab.train.checkpoint.state import State
from trainlab.train.checkpoint.tensor_file import to_bytes, write_content
from trainlab.train.parallel.followers import followers_of
from trainlab.train.parallel.process_group import in_parallel, join, leave
from trainlab.train.parallel.rehearsal import check_mean_of_parts
from trainlab.train.setup import Setup


class Crew:
    """Of one set-up."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.num_steps = 0
        """Steps that were made one by one since the others run freely."""
        self._followers = followers_of(setup.trial)
        self.tell = self._followers.tell
        try:
            self.model = self._joined()
        except BaseException:
            self.close()
            raise

    def _joined(self) -> DistributedDataParallel:
        """Once all stand ready: one that failed to get there would be waited for in vain."""
        setup, followers = self.setup, self._followers
        check_mean_of_parts(setup)
        followers.wait_until_ready()
        self.tell("join")
        join(setup.train_batches.rank, followers.store, setup.device)
        return in_parallel(setup.model, setup.device)

    def restore(self, state: State) -> None:
        """Gives all a state to go on from."""
        path = write_content(self._followers.folder, "state", to_bytes(state))
        self.tell("restore", path=str(path))

    def reason_of(self, error: Exception) -> Exception:
        """The end of another process, where an error of this one comes from that; else the error. What the
        model itself raises may have ended the others too."""
        is_of_gloo = type(error) is RuntimeError and "gloo" in str(error)
        is_of_exchange = is_of_gloo or isinstance(error, distributed.DistError)
        return self._followers.lost() if is_of_exchange else error

    def close(self) -> None:
        """Ends the other processes."""
        self._followers.close()
        leave()


_crew: Crew | None = None
"""This process can be in one process group."""


def crew_of(setup: Setup) -> Crew:
    """The crew of a set-up, started when first asked for; another set-up's is dismissed."""
    global _crew
    if _crew is None or _crew.setup is not setup:
        dismiss_crew()
        _crew = Crew(setup)
    return _crew


def dismiss_crew() -> None:
    """Ends the other processes, if there are any."""
    global _crew
    if _crew is not None:
        _crew.close()
        _crew = None
