"""The machines, the software and the data of a run."""

from trainlab.analysis.document import Section, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import RunData
from trainlab.analysis.tables import Field, name, table_of
from trainlab.record.study_record import Environment
from trainlab.record.trial_record import DataRecord
from trainlab.words import Words


def environment_section(data: RunData, words: Words) -> Section:
    """The machines and software everything ran on."""
    machines = data.evidence.environments.values()
    tables = tuple(environment_table(machine, words, data.evidence) for machine in machines)
    return Section("environment", words("environment"), tables)


def environment_table(
    environment: Environment, words: Words, evidence: Evidence | None = None
) -> Table:
    """One row per fact; also the data that a run used, where its evidence is given."""
    data = [t.data for t in (evidence.trials if evidence else ()) if t.data is not None]
    texts = dict.fromkeys(_data_text(one, words) for one in data)
    rows = environment_rows(environment, words) + [(words("env_data"), text) for text in texts]
    fields: list[Field[tuple[str, str]]] = [
        name(words("what"), lambda row: row[0]),
        name(words("value"), lambda row: row[1]),
    ]
    note = words("environment_note") if evidence else ""
    return table_of(
        words("environment_table" if evidence else "environment_now"), fields, rows, note
    )


def _data_text(data: DataRecord, words: Words) -> str:
    text = f"{data.name}: {data.num_train:,} + {data.num_test:,}"
    if data.num_val:
        text += f" + {words('validation_samples', number=f'{data.num_val:,}')}"
    return f"{text} ({words.named('source', data.source)})"


def environment_rows(env: Environment, words: Words) -> list[tuple[str, str]]:
    """Machine and software, as name and value; several GPUs have a row each."""
    usable = words("vcpus", usable=env.num_vcpus_usable, number=env.num_vcpus)
    rows = [
        (words("env_cpu"), f"{env.cpu}, {usable}"),
        (words("env_memory"), f"{env.memory_gib} GiB"),
    ]
    for gpu in env.gpus:
        memory = "" if gpu.memory_gib is None else f", {gpu.memory_gib:.0f} GiB"
        rows.append((words("env_gpu"), gpu.name + memory))
    if not env.gpus:
        rows.append((words("env_gpu"), words("env_none")))
    packages = ", ".join(f"{package} {version}" for package, version in env.packages.items())
    cudnn = f", cuDNN {env.cudnn}" if env.cudnn else ""
    driver = f", {words('env_driver')} {env.driver}" if env.driver else ""
    rows += [
        (words("env_os"), f"{env.os}, {env.kernel}"),
        ("Python", env.python),
        (words("env_packages"), packages),
        ("CUDA", f"{env.cuda}{cudnn}{driver}" if env.cuda else words("env_none")),
    ]
    if env.torch_threads is not None:
        rows.append((words("env_threads"), str(env.torch_threads)))
    if env.variables:
        variables = ", ".join(f"{variable}={text}" for variable, text in env.variables.items())
        rows.append((words("env_variables"), variables))
    if env.git_commit:
        dirty = f" ({words('env_dirty')})" if env.git_dirty else ""
        rows.append((words("env_commit"), env.git_commit[:12] + dirty))
    return rows
