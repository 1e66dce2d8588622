"""The machine, the software and the data of a run."""

from trainlab.record.environment import Environment
from trainlab.report.document import Row, Section, Table, table
from trainlab.report.entries import text
from trainlab.report.material import Material
from trainlab.words import Words


def environment_section(material: Material, words: Words) -> Section:
    """The machine and software everything ran on."""
    return Section("environment", words("environment"), (environment_table(material, words),))


def environment_table(material: Material, words: Words) -> Table:
    """One row per fact."""
    rows = environment_rows(material.evidence.environment, words)
    data = {
        f"{d.name}: {d.num_train:,} + {d.num_test:,} ({d.source})": None
        for trial in material.evidence.trials
        if (d := trial.data) is not None
    }
    rows += [(words("env_data"), told) for told in data]
    return table(
        words("environment_table"),
        ((words("what"), False), (words("value"), False)),
        [Row((text(name), text(value))) for name, value in rows],
        note=words("environment_note"),
    )


def environment_rows(environment: Environment, words: Words) -> list[tuple[str, str]]:
    """What explains a number, as name and value."""
    usable = words("vcpus", usable=environment.num_vcpus_usable, number=environment.num_vcpus)
    rows = [
        (words("env_cpu"), f"{environment.cpu}, {usable}"),
        (words("env_memory"), f"{environment.memory_gib} GiB"),
    ]
    for gpu in environment.gpus:
        memory = "" if gpu.memory_gib is None else f", {gpu.memory_gib:.0f} GiB"
        rows.append((words("env_gpu"), gpu.name + memory))
    rows.append((words("env_os"), f"{environment.os}, {environment.kernel}"))
    rows.append(("Python", environment.python))
    rows.append(
        (words("env_packages"), ", ".join(f"{n} {v}" for n, v in environment.packages.items()))
    )
    if environment.cuda:
        cudnn = f", cuDNN {environment.cudnn}" if environment.cudnn else ""
        driver = f", {words('env_driver')} {environment.driver}" if environment.driver else ""
        rows.append(("CUDA", f"{environment.cuda}{cudnn}{driver}"))
    if environment.torch_threads is not None:
        rows.append((words("env_threads"), str(environment.torch_threads)))
    if environment.variables:
        told = ", ".join(f"{n}={v}" for n, v in environment.variables.items())
        rows.append((words("env_variables"), told))
    if environment.git_commit:
        dirty = f" ({words('env_dirty')})" if environment.git_dirty else ""
        rows.append((words("env_commit"), environment.git_commit[:12] + dirty))
    return rows
