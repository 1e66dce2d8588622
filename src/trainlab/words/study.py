"""What was run: trials that went wrong, the machine, the method, how to repeat it, the files."""

STUDY = {
    # What went wrong.
    "trouble": ("What went wrong", "出错的试验"),
    "trouble_table": (
        "Trials that did not end well, or that have something to tell",
        "没有正常结束或有备注的试验",
    ),
    "trial": ("trial", "试验"),
    "state": ("state", "状态"),
    "updates": ("updates", "更新次数"),
    "what_happened": ("what happened", "情况"),
    "traceback": ("The end of the error of {trial}", "{trial} 的错误信息（末尾）"),
    "diverged_at": (
        "the loss of update {step} is not finite; a smaller learning rate usually helps",
        "第 {step} 次更新的损失不是有限数；通常减小学习率会有帮助",
    ),
    "state_pending": ("not run", "未运行"),
    "state_running": ("running", "运行中"),
    "state_done": ("done", "完成"),
    "state_diverged": ("diverged", "发散"),
    "state_interrupted": ("interrupted", "中断"),
    "state_failed": ("failed", "失败"),
    # Environment.
    "environment": ("Environment", "环境"),
    "environment_table": ("The machine and software of this run", "本次运行的机器与软件"),
    "environment_note": (
        "As recorded when the run began; environment.json has it in full.",
        "运行开始时的记录，完整内容见 environment.json。",
    ),
    "what": ("what", "项目"),
    "value": ("value", "值"),
    "vcpus": ("{usable} of {number} vCPUs usable", "{number} 个 vCPU 中可用 {usable} 个"),
    "env_cpu": ("CPU", "CPU"),
    "env_memory": ("memory", "内存"),
    "env_gpu": ("GPU", "GPU"),
    "env_os": ("operating system", "操作系统"),
    "env_packages": ("packages", "软件包"),
    "env_driver": ("driver", "驱动"),
    "env_threads": ("threads of torch", "torch 线程数"),
    "env_variables": ("variables", "环境变量"),
    "env_commit": ("git commit", "git 提交"),
    "env_dirty": ("with changes", "有改动"),
    "env_data": ("data (training + test)", "数据（训练 + 测试）"),
    # Method.
    "method": ("Method, and what cannot be told", "方法与无法判断之处"),
    "method_learn": (
        "Learning: each cell was trained once per seed, {seeds} in all; initial weights, data order and "
        "dropout derive from the seed alone, so cells are compared seed by seed.",
        "学习：每组每个种子训练一次，共 {seeds} 个种子；初始权重、数据顺序和 dropout 只由种子决定，"
        "因此各组按种子逐一比较。",
    ),
    "method_cost": (
        "Cost: {processes} fresh processes per cell, alone on the machine and in turns with the other "
        "cells; {warmups} warm-up steps each, kept apart; {steps} bare steps per cell. A sample is one "
        "process's median step. Speeds come from bare processes only, shares from watched ones.",
        "开销：每组 {processes} 个全新进程，独占机器，与其他组轮流；每个进程预热 {warmups} 步（单独记录）；"
        "每组共 {steps} 个未被观测的步。一个样本是一个进程的步时间中位数。速度只取自未被观测的进程，"
        "占比取自被观测的进程。",
    ),
    "method_floor": (
        "Noise floor of {step}: {cell}, measured twice, differs by {floor} (log ratio); smaller "
        "differences are not called different.",
        "{step}的噪声下限：{cell} 测两次相差 {floor}（对数比）；更小的差异不判为有差异。",
    ),
    "test_learn": (
        "Test of learned figures: paired t and exact sign flip must agree; Holm's correction over all "
        "comparisons of one figure; equivalent means within the margin stated beforehand.",
        "学习结果的检验：配对 t 检验与精确符号翻转检验须一致；同一指标的所有比较用 Holm 方法校正；"
        "“等同”指差异在事先给定的界限之内。",
    ),
    "test_cost": (
        "Test of costs: Welch's t on logs over fresh processes, Holm's correction, and beyond the noise "
        "floor of the same cell measured twice.",
        "开销的检验：对各全新进程的对数时间做 Welch t 检验，用 Holm 方法校正，"
        "并要求超过同一组测两次的噪声下限。",
    ),
    "no_confounds": (
        "Nothing that was recorded differs between compared cells beyond the factor itself.",
        "在所有记录中，被比较的组之间除因素本身外没有其他不同。",
    ),
    "confounds": (
        "Beyond the factor itself these differ between compared cells: {told}.",
        "除因素本身外，被比较的组之间还有以下不同：{told}。",
    ),
    "ledger_table": ("What watching costs ({cell})", "观测本身的开销（{cell}）"),
    "ledger_note": (
        "How much longer a watched step takes, in no time above; median over pairs of neighbouring steps.",
        "被观测的一步多用的时间，不计入上面的任何时间；为相邻步对的中位数。",
    ),
    "instrument": ("instrument", "仪器"),
    "added": ("added", "增加"),
    "pairs": ("pairs", "对数"),
    "instrument_phases": ("phases", "阶段计时"),
    "instrument_layers": ("layers", "逐层观测"),
    "instrument_probes": ("probes of the study", "本研究的探针"),
    "instrument_operators": ("operators (torch's profiler)", "算子（torch 分析器）"),
    "warning_table": ("Unstable measurements", "不稳定的测量"),
    "why": ("why, and what to do", "原因与对策"),
    "nothing_open": (
        "No comparison was left open and no measurement was unstable.",
        "没有悬而未决的比较，也没有不稳定的测量。",
    ),
    # How to repeat it.
    "repeat": ("How to repeat it", "如何重复"),
    "repeat_intro": (
        "With trainlab {version}: the command as it was given, or the study as a file "
        "(trainlab run study.toml).",
        "使用 trainlab {version}：原来的命令，或把研究存为文件后运行（trainlab run study.toml）。",
    ),
    "repeat_command": ("The command", "命令"),
    "repeat_file": ("study.toml", "study.toml"),
    "repeat_versions": ("Versions of packages", "软件包版本"),
    # Files.
    "files": ("Data files", "数据文件"),
    "files_intro": ("All in the run folder; plain files.", "都在运行文件夹中，均为普通文件。"),
    "files_table": ("Files of the run", "运行的文件"),
    "file": ("file", "文件"),
    "holds": ("what it holds", "内容"),
    "file_study": ("what was asked and how it was resolved", "研究的内容及其解析结果"),
    "file_environment": ("the machine and software", "机器与软件"),
    "file_results": (
        "one tidy row per trial and figure, with units",
        "每次试验每个指标一行，带单位",
    ),
    "file_parquet": ("the same, for programs", "同上，供程序读取"),
    "file_epochs": ("one row per trial and epoch", "每次试验每轮一行"),
    "file_trial": (
        "a trial: settings, state, final figures, error",
        "一次试验：设置、状态、最终结果、错误",
    ),
    "file_curve": ("losses and metrics as training went on", "训练过程中的损失与指标"),
    "file_probes": ("what the probes saw, a line per value", "探针的观测值，每行一个"),
    "file_cost": ("raw step times and phases", "原始步时间与各阶段"),
    "file_operators": ("the profiler's raw sums", "分析器的原始汇总"),
    "file_layers": ("layers: shapes, work, raw times", "各层：形状、计算量、原始时间"),
    "file_trace": ("a trace to open in Perfetto", "可用 Perfetto 打开的轨迹"),
    "file_tensorboard": ("event files for TensorBoard", "TensorBoard 事件文件"),
}
