"""Cells side by side, and two runs side by side."""

COMPARING = {
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
