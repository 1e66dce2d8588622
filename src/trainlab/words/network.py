"""The network, and what it learned."""

NETWORK = {
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
    "above_memory": (
        "More than 100 % of the memory's speed: caches served what memory did not have to.",
        "超过内存速度的 100 %：部分数据来自缓存，不必访问内存。",
    ),
    "uncounted": (
        "FLOPs of {names} are not known and not counted.",
        "{names} 的 FLOP 数未知，没有计入。",
    ),
    # Learning.
    "learn": ("Loss and accuracy", "损失与准确率"),
    "learn_intro": (
        "Seeds per cell: {seeds}. A curve is the mean over seeds and its band the 95 % interval of that "
        "mean.",
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
        "Mean over seeds with its 95 % interval; no band where that is mostly wider than a quarter of the "
        "chart.",
        "各种子的均值及其 95 % 区间；区间大多宽于图框四分之一时不画色带。",
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
}
