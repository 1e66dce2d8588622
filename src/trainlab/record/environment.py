"""Environment: the machine and software a run happened on, as recorded."""

from trainlab.record.schema import FileRecord, Record


class Gpu(Record):
    """One GPU as the driver names it."""

    name: str
    memory_gib: float | None = None
    power_limit_w: float | None = None
    sm_clock_max_mhz: int | None = None


class Environment(FileRecord):
    """environments/*.json: one machine of a run."""

    host: str = ""
    """The machine's own name."""
    cpu: str
    num_vcpus: int
    num_vcpus_usable: int
    """What this process may use: affinity and container quota counted in."""
    memory_gib: float
    gpus: tuple[Gpu, ...]
    driver: str | None
    os: str
    kernel: str
    python: str
    packages: dict[str, str]
    cuda: str | None
    cudnn: str | None
    torch_threads: int | None
    torch_interop_threads: int | None
    tf32: dict[str, bool] | None
    variables: dict[str, str]
    """Environment variables that steer threads and GPUs, where set."""
    git_commit: str | None
    git_dirty: bool | None


UNKNOWN = Environment(
    cpu="unknown",
    num_vcpus=0,
    num_vcpus_usable=0,
    memory_gib=0.0,
    gpus=(),
    driver=None,
    os="unknown",
    kernel="unknown",
    python="unknown",
    packages={},
    cuda=None,
    cudnn=None,
    torch_threads=None,
    torch_interop_threads=None,
    tf32=None,
    variables={},
    git_commit=None,
    git_dirty=None,
)
"""For a run in which no trial has been started."""
