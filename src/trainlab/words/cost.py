"""What a step costs: operators, phases, scaling, limits, the cold start."""

COST = {
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
}
