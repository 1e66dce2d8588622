"""Words: every label, caption and note of a report, in English and Chinese, in one table."""

from trainlab.report.language import LANGUAGES, check_language
from trainlab.report.warnings import warning_in_chinese

WORDS: dict[str, tuple[str, str]] = {
    # The frame.
    "subtitle": (
        "{name} · workload {workload} · {date} · {number} trials",
        "{name} · 工作负载 {workload} · {date} · {number} 次试验",
    ),
    "made_by": (
        "Written by trainlab {version} from the records of the run; no number was typed in by hand.",
        "由 trainlab {version} 根据运行记录生成，没有一个数字是手工填写的。",
    ),
    "contents": ("Contents", "目录"),
    "skip": ("Skip to the report", "跳到正文"),
    "theme": ("Dark or light", "深色或浅色"),
    "cells_shown": ("Cells shown (in charts and tables)", "显示的组（图和表中）"),
    "all": ("all", "全部"),
    "none": ("none", "无"),
    "filter": ("Filter rows", "筛选行"),
    "filter_of": ("Filter the rows of: {caption}", "筛选表中的行：{caption}"),
    "show_all": ("Show all {number} rows", "显示全部 {number} 行"),
    "show_fewer": ("Show fewer", "收起"),
    "sort_hint": ("Click a heading to sort.", "点击表头排序。"),
    "more_rows": (
        "The first {shown} of {number} rows; the HTML report and the data files have all of them.",
        "仅列出前 {shown} 行，共 {number} 行；全部内容见 HTML 报告和数据文件。",
    ),
    "no_script": (
        "Charts need JavaScript, which is part of this file; nothing is fetched from outside.",
        "图表需要 JavaScript（已包含在本文件中，不会访问外部资源）。",
    ),
    "chart_hint": (
        "Hover for values; Shift and wheel zoom, dragging moves, a double click resets.",
        "悬停查看数值；按住 Shift 滚动缩放，拖动平移，双击还原。",
    ),
    "figure_number": ("Figure {number}", "图 {number}"),
    "table_number": ("Table {number}", "表 {number}"),
    "page": ("Page {number} of {all}", "第 {number} 页，共 {all} 页"),
    "warning_mark": ("Note", "注意"),
    "failure_mark": ("Not complete", "不完整"),
    "range": ("{low} to {high}", "{low} 至 {high}"),
    "colon": (": ", "："),
    "full_stop": (". ", "。"),
    "list_comma": (", ", "，"),
    "list_semicolon": ("; ", "；"),
    # How sure something is.
    "mark_different": ("different", "有差异"),
    "mark_equivalent": ("equivalent", "等同"),
    "mark_cannot_tell": ("cannot tell", "无法判断"),
    "mark_fact": ("measured", "实测"),
    # Notices.
    "notice_unfinished": (
        "This run is not finished: {some} of {all} trials have not ended. Everything below is from "
        "those that have.",
        "本次运行尚未完成：{all} 次试验中有 {some} 次未结束。以下内容只依据已结束的试验。",
    ),
    "notice_failed": (
        "{some} of {all} trials failed; see “What went wrong”.",
        "{all} 次试验中有 {some} 次失败，见“出错的试验”。",
    ),
    "notice_interrupted": (
        "{some} of {all} trials were interrupted; see “What went wrong”.",
        "{all} 次试验中有 {some} 次被中断，见“出错的试验”。",
    ),
    "notice_subset": (
        "Trained on a subset of {name} ({train} training and {test} test samples): accuracies are lower "
        "than on the full set.",
        "使用的是 {name} 的子集（训练 {train} 个、测试 {test} 个样本）：准确率低于完整数据集。",
    ),
    "unstable_notice": (
        "{some} of {all} cost measurements were unstable: times below may be those of a busy machine. "
        "The method section says why.",
        "{all} 项开销测量中有 {some} 项不稳定：下面的时间可能受到机器繁忙的影响，原因见“方法”。",
    ),
    # Answer.
    "answer": ("Question and answer", "问题与回答"),
    "no_question": (
        "What comes of training {workload} with these settings?",
        "用这些设置训练 {workload} 会得到什么结果？",
    ),
    "no_findings": (
        "This run compares nothing, or too little of it has ended; the sections below show what it has.",
        "本次运行没有可比较的内容，或结束的试验太少；下面列出已有的结果。",
    ),
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
    # The network.
    "network": ("The network", "网络结构"),
    "network_intro": (
        "{number} calls of layers and functions, {parameters} parameters, in the order data flows "
        "through them. ",
        "共 {number} 次层或函数调用，{parameters} 个参数，按数据流动的顺序排列。",
    ),
    "network_where": (
        "Times are shares of {step} of {cell} at batch {batch}.",
        "时间为 {cell}（批大小 {batch}）{step}中的占比。",
    ),
    "network_caption": ("Data flow through the network", "网络的数据流图"),
    "network_alt": (
        "Data-flow graph of {number} calls with {parameters} parameters: {chain}",
        "数据流图，{number} 次调用，{parameters} 个参数：{chain}",
    ),
    "network_note": (
        "Each box: name and type, output shape, parameters; the bar and the figure at its right are "
        "its share of the step, forward and backward together.",
        "每个方框：名称与类型、输出形状、参数量；右侧数字和条形为它在一步中的时间占比"
        "（前向与反向合计）。",
    ),
    "network_collapsed": (
        "Neighbouring layers of one block are drawn as one box; the table has each.",
        "同一模块中相邻的层合并为一个方框，表中逐一列出。",
    ),
    "network_input": ("batch", "输入批"),
    "num_calls": ("{number} calls", "{number} 次调用"),
    "num_parameters": ("{number} parameters", "{number} 个参数"),
    "layer_table": (
        "Layers as written, with their share of a step ({cell})",
        "各层及其在一步中的占比（{cell}）",
    ),
    "layer": ("layer", "层"),
    "type": ("type", "类型"),
    "output": ("output", "输出形状"),
    "parameters": ("parameters", "参数量"),
    "forward_mflop": ("forward MFLOP", "前向 MFLOP"),
    "forward_ms": ("forward ms", "前向 毫秒"),
    "backward_ms": ("backward ms", "反向 毫秒"),
    "share": ("share", "占比"),
    "near": ("limit it is near", "接近的极限"),
    "near_compute": ("compute", "计算"),
    "near_memory": ("memory", "内存"),
    "near_neither": ("neither", "都不接近"),
    "between_layers": ("between layers", "层与层之间"),
    "layers_note": (
        "Shares come from a watched process; milliseconds are these shares of the bare step.",
        "占比来自被观测的进程；毫秒数由这些占比乘以未被观测的步时间得到。",
    ),
    "uncounted": (
        "FLOPs of {names} are not known and not counted.",
        "{names} 的 FLOP 数未知，没有计入。",
    ),
    # Learning.
    "learn": ("Loss and accuracy", "损失与准确率"),
    "learn_intro": (
        "Every cell was trained with {seeds} seeds; a curve is the mean over seeds and its band the "
        "95 % interval of that mean.",
        "每一组用 {seeds} 个种子训练；曲线是各种子的均值，色带是均值的 95 % 区间。",
    ),
    "curves_chosen": (
        "Curves are drawn for {drawn} of {all} cells: the reference, and those that ended highest and "
        "lowest. The table has all of them.",
        "{all} 组中只画出 {drawn} 组的曲线：参照组以及结果最高和最低的组。表中列出全部。",
    ),
    "trend_caption": ("{metric} over training", "训练过程中的 {metric}"),
    "trend_alt": (
        "Line chart of {metric} over training; it ends at {ends}.",
        "{metric} 随训练变化的折线图，最终为 {ends}。",
    ),
    "trend_note": (
        "Mean over seeds, with its 95 % interval where that fits the chart.",
        "各种子的均值及其 95 % 区间（超出图框的部分被截去）。",
    ),
    "trend_note_one": ("One seed: no interval.", "只有一个种子，没有区间。"),
    "final_caption": ("{metric} at the end", "最终的 {metric}"),
    "final_alt": ("Chart of {metric} by cell: {values}.", "各组的 {metric}：{values}。"),
    "dots_note": (
        "Dot: mean over seeds; line: its 95 % interval, cut where it leaves the chart; tick: one seed.",
        "圆点：各种子的均值；横线：均值的 95 % 区间（超出图框的部分被截去）；竖线：单个种子。",
    ),
    "left_out": (
        "{number} further cells are in the table only.",
        "另有 {number} 组只列在表中。",
    ),
    "epochs_seen": ("epochs", "轮数"),
    "interval_low": ("95 % from", "95 % 下限"),
    "interval_high": ("95 % to", "95 % 上限"),
    "seeds": ("seeds", "种子数"),
    "learn_table": ("What each cell learned", "各组学到的结果"),
    "learn_table_note": (
        "Mean over seeds [95 % interval of the mean] after the last epoch.",
        "最后一轮之后各种子的均值［均值的 95 % 区间］。",
    ),
    "epoch_s_training": ("training s per epoch", "每轮训练秒数"),
    "none_finite": ("none finite", "没有有限值"),
    "some_of": ("{some} of {all}", "{all} 中的 {some}"),
    "findings_left_out": (
        "{number} further findings are left out here; the tables and data files have their figures.",
        "此处省略另外 {number} 条结论，数值见表格和数据文件。",
    ),
    # Operators.
    "operators": ("Operators", "算子"),
    "operators_intro": (
        "From torch's profiler, in a process of its own: shares and counts hold, speeds do not. Ranked "
        "by self time, so that wrappers do not count twice.",
        "来自 torch 分析器（单独的进程）：占比和次数可信，速度不可信。按自身时间排序，"
        "避免外层算子重复计算。",
    ),
    "operators_caption": ("Operators' shares of {step}", "{step}中各算子的占比"),
    "operators_note": (
        "Shares of the profiled step's time, by self time.",
        "占被分析的一步时间的比例，按自身时间计。",
    ),
    "operators_left_out": (
        "The tables of {number} further cells are in the data files (operators.json).",
        "另外 {number} 组的算子表见数据文件（operators.json）。",
    ),
    "operator_table": (
        "Top operators of {step}, {cell}, on {device}",
        "{step}的主要算子，{cell}，设备 {device}",
    ),
    "operator": ("operator", "算子"),
    "shapes": ("input shapes", "输入形状"),
    "self_us": ("self µs per step", "自身 µs/步"),
    "total_us": ("total µs per step", "总计 µs/步"),
    "average_us": ("average µs per call", "平均 µs/次"),
    "calls": ("calls per step", "每步次数"),
    "memory_kib": ("memory KiB per step", "内存 KiB/步"),
    "outside_note": (
        "Outside all operators (Python, the profiler): {time} µs per step, {share}.",
        "算子之外（Python 与分析器）：每步 {time} µs，占 {share}。",
    ),
    "calls_differ": (
        "Calls differ between steps: averages are shown.",
        "各步的调用次数不同，表中为平均值。",
    ),
    "share_of_step": ("% of the step", "占一步的 %"),
    "rest_of_operators": ("all other operators", "其余算子"),
    "outside_operators": ("outside operators", "算子之外"),
    # Phases.
    "phases": ("Phases and memory of a step", "一步的各阶段与内存"),
    "phases_intro": (
        "Where the time of a step goes and what its memory holds at the peak.",
        "一步的时间花在哪里，内存峰值时存放的是什么。",
    ),
    "phases_caption": ("Phases of {step}", "{step}的各阶段"),
    "phases_note": (
        "Bars are shares of a step; hover, or the table, tells milliseconds.",
        "条形为占一步的比例，毫秒数见悬停提示或表格。",
    ),
    "phase_table": ("Phases of {step}: ms per batch (share)", "{step}的各阶段：每批毫秒数（占比）"),
    "memory_caption": ("Memory of {step} at its peak", "{step}内存峰值的构成"),
    "memory_note": (
        "Bytes of each kind alive at the peak; hover tells MiB.",
        "峰值时各类内存的占比，悬停显示 MiB。",
    ),
    "bars_alt": ("Stacked bars by cell: {caption}. ", "各组的堆叠条形图：{caption}。"),
    "bars_alt_first": ("In {cell} most goes to {parts}.", "{cell} 中占比最大的是 {parts}。"),
    "share_of_whole": ("share of the whole", "占总量的比例"),
    "part": ("part", "部分"),
    "milliseconds": ("ms", "毫秒"),
    "phase_data": ("data", "取数据"),
    "phase_transfer": ("transfer", "传输"),
    "phase_zero_grad": ("zero_grad", "梯度清零"),
    "phase_forward": ("forward", "前向"),
    "phase_loss": ("loss", "损失"),
    "phase_backward": ("backward", "反向"),
    "phase_optimizer": ("optimizer", "优化器"),
    "phase_other": ("other", "其他"),
    "memory_parameters": ("parameters", "参数"),
    "memory_buffers": ("buffers", "缓冲区"),
    "memory_gradients": ("gradients", "梯度"),
    "memory_optimizer": ("optimizer", "优化器状态"),
    "memory_input": ("input", "输入"),
    "memory_activations": ("activations", "激活值"),
    "memory_other": ("results on the way, workspaces", "中间结果与工作区"),
    # Comparison.
    "comparison": ("Comparison by factor", "按因素比较"),
    "cost": ("What it costs", "开销"),
    "comparison_intro": (
        "All cells side by side first; then, for each factor, what its levels do and how sure that is.",
        "先列出所有组，再逐个因素说明各水平的影响以及把握程度。",
    ),
    "cost_table": ("What each cell costs", "各组的开销"),
    "cost_table_note": (
        "Medians of bare steps in fresh processes [where the same measurement, repeated, falls in 95 % "
        "of cases]; an epoch of inference is one pass over the test set. Memory from a watched process.",
        "全新进程中未被观测的步的中位数［重复同样的测量有 95 % 落入的范围］；推理的一轮指遍历一次测试集。"
        "内存来自被观测的进程。",
    ),
    "cell": ("cell", "组"),
    "mode": ("mode", "模式"),
    "mode_train": ("training", "训练"),
    "mode_inference": ("inference", "推理"),
    "step_train": ("a training step", "训练步"),
    "step_inference": ("an inference step", "推理步"),
    "device": ("device", "设备"),
    "step_ms": ("ms per batch", "毫秒/批"),
    "sample_us": ("µs per sample", "µs/样本"),
    "epoch_s": ("s per epoch", "秒/轮"),
    "samples_per_s": ("samples per s", "样本/秒"),
    "peak_mib": ("peak memory, MiB", "内存峰值，MiB"),
    "step_ms_caption": ("Time per batch", "每批时间"),
    "sample_us_caption": ("Time per sample", "每样本时间"),
    "epoch_s_caption": ("Time per epoch", "每轮时间"),
    "samples_per_s_caption": ("Throughput", "吞吐量"),
    "peak_mib_caption": ("Peak memory", "内存峰值"),
    "cost_dots_note": (
        "Line: where the same measurement, repeated, falls in 95 % of cases, cut where it leaves the "
        "chart.",
        "横线：重复同样的测量有 95 % 落入的范围（超出图框的部分被截去）。",
    ),
    "memory_dots_note": (
        "The most that tensors held at once during a step.",
        "一步之中张量同时占用的最大内存。",
    ),
    "again": ("measured again", "再次测量"),
    "trained": ("trained weights", "训练后的权重"),
    "factor": ("What {factor} does", "{factor} 的影响"),
    "factor_table": (
        "Levels of {factor}, each with its reference",
        "{factor} 的各水平与参照的比较",
    ),
    "factor_note": (
        "Differences for what was learned (paired by seed), ratios for costs; n counts seeds or "
        "processes. Verdicts hold for all comparisons of one figure together.",
        "学习结果给出差值（按种子配对），开销给出倍数；n 为种子数或进程数。同一指标的所有比较一起判定。",
    ),
    "level": ("level", "水平"),
    "figure": ("figure", "指标"),
    "reference": ("reference", "参照"),
    "here": ("here", "本组"),
    "difference": ("difference", "差异"),
    "interval": ("95 %", "95 %"),
    "n": ("n", "n"),
    "verdict": ("verdict", "结论"),
    "points": ("points", "个百分点"),
    "times": ("{value} times", "{value} 倍"),
    "subject_train_sample_us": ("training, µs per sample", "训练，µs/样本"),
    "subject_inference_sample_us": ("inference, µs per sample", "推理，µs/样本"),
    "subject_train_peak_bytes": ("training, peak MiB", "训练，内存峰值 MiB"),
    "subject_inference_peak_bytes": ("inference, peak MiB", "推理，内存峰值 MiB"),
    # Scaling.
    "scaling": ("Scaling with the batch", "随批大小的变化"),
    "scaling_intro": (
        "A fixed cost per batch and a cost per sample, fitted to the measured sizes; each size is also "
        "predicted from the others, as a check.",
        "用“每批固定开销加每样本开销”拟合各批大小，并由其他批大小预测每一种作为检验。",
    ),
    "scaling_caption": ("Time of {step} by batch size", "{step}的时间随批大小的变化"),
    "scaling_alt": (
        "{caption}, both axes logarithmic; measured ms by size: {values}.",
        "{caption}，双对数坐标；各批大小的毫秒数：{values}。",
    ),
    "scaling_note": (
        "Dots: measured; line: fixed cost plus cost per sample; band: where a measurement would fall "
        "in 95 % of cases.",
        "圆点：测量值；线：固定开销加每样本开销；色带：测量值有 95 % 落入的范围。",
    ),
    "batch_size": ("batch size", "批大小"),
    "fitted": ("fit", "拟合"),
    # Hardware.
    "hardware": ("Against the hardware's limits", "与硬件极限的比较"),
    "hardware_intro": (
        "Work done per second, beside the best matrix product and the best large copy measured on the "
        "same machine. Far below both, the time goes into launching operators and Python.",
        "每秒完成的工作量，与同一台机器上实测的最快矩阵乘法和最快内存复制相比。若远低于两者，"
        "时间花在启动算子和 Python 上。",
    ),
    "limits_table": ("How near each step came to its machine's limits", "各步与机器极限的接近程度"),
    "limits_note": (
        "FLOPs and bytes of the layers, forward and backward; the optimizer's work is not counted.",
        "只计各层前向与反向的 FLOP 数和字节数，不含优化器。",
    ),
    "gflop_per_s": ("GFLOP per s", "GFLOP/秒"),
    "of_best_compute": ("of the best product", "占最快矩阵乘法"),
    "gb_per_s": ("GB per s", "GB/秒"),
    "of_best_memory": ("of the best copy", "占最快复制"),
    # Probes.
    "probes": ("Inside the network", "网络内部"),
    "probes_intro": (
        "What the study's probes saw, mean over seeds with its 95 % interval; a probe is written as "
        "layer:quantity:reducer@period.",
        "研究中的探针所见：各种子的均值及其 95 % 区间；探针写作 层:量:归约@周期。",
    ),
    "probe_caption": ("{target}: {probe}", "{target}：{probe}"),
    "probes_left_out": (
        "{number} further probes are in the data files (probes.jsonl).",
        "另外 {number} 个探针的数据见文件 probes.jsonl。",
    ),
    # Cold start.
    "cold": ("Cold start", "冷启动"),
    "cold_intro": (
        "The first step of a process pays for what later ones find ready: memory touched for the first "
        "time, code loaded, kernels chosen. It is kept apart and is in no figure above.",
        "进程的第一步要为以后各步准备好一切：首次触及的内存、加载代码、选择计算核心。它单独记录，"
        "不包含在上面的任何数字里。",
    ),
    "cold_caption": ("The first steps of {step}", "{step}的最初几步"),
    "cold_alt": (
        "{caption}, as multiples of a settled one; the first: {values}.",
        "{caption}，为稳定后的倍数；第一步：{values}。",
    ),
    "step_number": ("step of the process", "进程中的第几步"),
    "times_settled": ("times a settled step", "稳定后一步的倍数"),
    "cold_table": (
        "First step beside a settled one: {step}, {cell}",
        "第一步与稳定后的一步：{step}，{cell}",
    ),
    "cold_note": (
        "Medians over processes; layers from the watched process.",
        "各进程的中位数；各层来自被观测的进程。",
    ),
    "first_step": ("first step", "第一步"),
    "settled": ("settled", "稳定后"),
    "ratio": ("times", "倍数"),
    "whole_step_ms": ("whole step, ms", "整步，毫秒"),
    "phase_ms": ("{phase}, ms", "{phase}，毫秒"),
    "layer_forward_ms": ("{layer} forward, ms", "{layer} 前向，毫秒"),
    "counted_page_faults": (
        "memory touched for the first time (pages of 4 KiB)",
        "首次触及的内存（4 KiB 页）",
    ),
    "counted_modules": ("Python modules imported", "导入的 Python 模块"),
    "counted_libraries": ("shared libraries loaded", "加载的共享库"),
    "counted_allocations": (
        "memory blocks asked from the GPU's driver",
        "向 GPU 驱动申请的内存块",
    ),
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
    "file_cost": ("raw step times and phases", "原始步时间与各阶段"),
    "file_operators": ("the profiler's raw sums", "分析器的原始汇总"),
    "file_layers": ("layers: shapes, work, raw times", "各层：形状、计算量、原始时间"),
    "file_trace": ("a trace to open in Perfetto", "可用 Perfetto 打开的轨迹"),
    "file_tensorboard": ("event files for TensorBoard", "TensorBoard 事件文件"),
    # Comparison of two runs.
    "compare_title": ("{workload}: {first} against {second}", "{workload}：{first} 与 {second}"),
    "compare_subtitle": (
        "A: {first}, {date_a} · B: {second}, {date_b}",
        "A：{first}，{date_a} · B：{second}，{date_b}",
    ),
    "compare_answer": ("In short", "概要"),
    "compare_cost_point": (
        "{cell}, {subject}: {a} in A, {b} in B, {ratio} times{reach}.",
        "{cell}，{subject}：A 为 {a}，B 为 {b}，{ratio} 倍{reach}。",
    ),
    "compare_learn_point": (
        "{cell}, {subject}: {a} in A, {b} in B, difference {difference}.",
        "{cell}，{subject}：A 为 {a}，B 为 {b}，相差 {difference}。",
    ),
    "compare_reach": (" [95 %: {low} to {high}]", "［95 %：{low} 至 {high}］"),
    "compare_machines": ("The two machines", "两台机器"),
    "compare_costs": ("What it costs", "开销"),
    "compare_costs_table": ("Cost per sample, A beside B", "每样本开销，A 与 B"),
    "compare_costs_note": (
        "Ratio: B over A, over fresh processes [95 %].",
        "倍数：B 比 A，基于全新进程［95 %］。",
    ),
    "compare_learned": ("What it learns", "学习结果"),
    "compare_learned_table": (
        "Means over the seeds both have, A beside B",
        "共有种子的均值，A 与 B",
    ),
    "compare_differs": ("What else differs", "其他不同之处"),
    "compare_differs_intro": (
        "Anything here may be the reason for a difference above.",
        "以下各项都可能是上述差异的原因。",
    ),
    "compare_nothing": ("Nothing that was recorded.", "记录中没有其他不同。"),
    "compare_only": ("Only in {run}: {cells}.", "只在 {run} 中：{cells}。"),
    "compare_b_over_a": ("B over A", "B 比 A"),
    "run": ("run", "运行"),
}
"""Key to the text in English and in Chinese; names in braces are filled in."""

COUNTED = {
    "memory touched for the first time (pages of 4 KiB)": "counted_page_faults",
    "Python modules imported": "counted_modules",
    "shared libraries loaded": "counted_libraries",
    "memory blocks asked from the GPU's driver": "counted_allocations",
}
INSTRUMENTS = {
    "phases": "instrument_phases",
    "layers": "instrument_layers",
    "operators (torch's profiler)": "instrument_operators",
}


class Words:
    """The words of one language."""

    def __init__(self, lang: str) -> None:
        check_language(lang)
        self.lang = lang
        self._index = list(LANGUAGES).index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with its names filled in."""
        return WORDS[key][self._index].format(**values)

    def knows(self, key: str) -> bool:
        """Whether there is such a text."""
        return key in WORDS

    def sentences(self, *told: str) -> str:
        """Sentences one after the other, as the language puts them."""
        return (" " if self.lang == "en" else "").join(told)

    def phase(self, name: str) -> str:
        """A phase of the step; a name we do not know stays as it is."""
        return self._named(f"phase_{name}", name)

    def mode(self, name: str) -> str:
        """Training or inference."""
        return self._named(f"mode_{name}", name)

    def memory(self, name: str) -> str:
        """A kind of memory."""
        return self._named(f"memory_{name}", name)

    def counted(self, name: str) -> str:
        """What was counted during a cold step."""
        return self._named(COUNTED.get(name, ""), name)

    def instrument(self, name: str) -> str:
        """An instrument of the ledger."""
        return self._named(INSTRUMENTS.get(name, ""), name)

    def test(self, name: str) -> str:
        """A statistical test, explained."""
        return self("test_cost" if name.startswith("Welch") else "test_learn")

    def warning(self, told: str) -> str:
        """What a measurement says about itself."""
        if self.lang == "en":
            return told.replace("%", " %")
        return warning_in_chinese(told)

    def _named(self, key: str, name: str) -> str:
        return self(key) if key in WORDS else name
