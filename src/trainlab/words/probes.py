"""Probes: what was watched inside the network, and what a value of each means."""

PROBES = {
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
    # What a value means: a quantity, how it is reduced, over which period.
    "meaning": (
        "{quantity}; of all its elements, {reducer}, {period}.",
        "{quantity}；{period}，取所有元素{reducer}。",
    ),
    "meaning_own": (
        "{quantity}; reduced by the study's own {name}, {period}.",
        "{quantity}；{period}，由研究自带的 {name} 归约。",
    ),
    "meaning_relu": (
        "how many inputs of the ReLU were positive: its own derivative is 1 there, else 0, {period}.",
        "ReLU 的输入中有多少为正：该处它自身的导数为 1，其余为 0；{period}。",
    ),
    "quantity_activation": ("what the layer gives (its first tensor)", "层的输出（第一个张量）"),
    "quantity_pre_activation": (
        "what the layer takes in (its first tensor that is no parameter)",
        "层的输入（第一个不是参数的张量）",
    ),
    "quantity_grad_output": (
        "the gradient of the loss with respect to what the layer gives",
        "损失对层的输出的梯度",
    ),
    "quantity_grad_input": (
        "the gradient of the loss that flows back through the layer to what it took in",
        "损失经过该层回传到其输入的梯度",
    ),
    "quantity_local_grad": (
        "the layer's own derivative, whatever the loss: at a ReLU 1 where its input was positive, "
        "else 0",
        "层自身的导数，与损失无关：ReLU 在输入为正处为 1，其余为 0",
    ),
    "quantity_weight": ("a parameter as it stands at the end of the period", "周期结束时的参数"),
    "quantity_grad": ("a parameter's gradient as the optimizer gets it", "优化器收到的参数梯度"),
    "quantity_update": (
        "what the optimizer added to a parameter: after less before",
        "优化器给参数加上的量：更新后减更新前",
    ),
    "reducer_sum": ("their sum", "之和"),
    "reducer_sq_sum": ("the sum of their squares", "的平方和"),
    "reducer_norm": ("the root of the sum of their squares", "的平方和的平方根"),
    "reducer_mean": ("their mean", "的均值"),
    "reducer_std": ("their standard deviation (divided by the count)", "的标准差（除以元素个数）"),
    "reducer_min": ("the smallest", "中的最小值"),
    "reducer_max": ("the largest", "中的最大值"),
    "reducer_zero_fraction": ("the share that is exactly zero", "中恰好为零的比例"),
    "reducer_positive_count": ("how many are above zero", "中大于零的个数"),
    "reducer_dead_fraction": (
        "the share of units that were never above zero",
        "中从未大于零的单元的比例",
    ),
    "reducer_histogram": ("how many fall into each bin", "落入各区间的个数"),
    "every_step": ("in each step", "每一步"),
    "every_epoch": ("over each epoch", "每一轮"),
    "every_steps": ("over every {number} steps", "每 {number} 步"),
    "every_end": ("at the end of each period", "每个周期结束时"),
}
