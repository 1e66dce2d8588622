"""Findings as sentences; `sentences` fills them in from the values of a finding."""

FINDINGS = {
    "also_differ": (
        "Beware: these also differ: {confounds}.",
        "注意：以下各项也不同：{confounds}。",
    ),
    "at": (" (at {rest})", "（{rest}）"),
    "one_seed": ("1 seed", "1 个种子"),
    "num_seeds": ("{number} seeds", "{number} 个种子"),
    "mean_of_seeds": ("mean of {seeds}", "{seeds}的均值"),
    "reach": (" [95 %: {low} to {high}]", "［95 %：{low} 至 {high}］"),
    # Learning.
    "effect_unknown": (
        "{change}: {metric} cannot be compared, no seed ended well in both cells.",
        "{change}：{metric} 无法比较，没有一个种子在两组中都正常结束。",
    ),
    "effect": ("{change}: {metric} {means} ({seeds})", "{change}：{metric} 为 {means}（{seeds}）"),
    "effect_different": (
        "{effect}: different, by {difference}{reach}, {p}.",
        "{effect}：有差异，相差 {difference}{reach}，{p}。",
    ),
    "effect_equivalent": (
        "{effect}: equivalent within {margin}; the difference is {difference}{reach}.",
        "{effect}：在 {margin} 之内等同；差值为 {difference}{reach}。",
    ),
    "effect_open": (
        "{effect}: cannot tell; the difference is {difference}{reach}.",
        "{effect}：无法判断；差值为 {difference}{reach}。",
    ),
    "seeds_too_few": (
        "With {seeds} no difference could be shown; it takes at least {fewest}.",
        "{seeds}无法证明任何差异，至少需要 {fewest} 个。",
    ),
    "seeds_would_do": (
        "About {needed} seeds would settle it if the difference is real.",
        "如果差异属实，大约 {needed} 个种子可以得出结论。",
    ),
    "no_reset_why": (
        "Without resets the gradients of all past batches add up, so every update follows their sum "
        "instead of the current batch, and its size keeps growing.",
        "不清零时，以往各批的梯度不断累加，每次更新跟随的是它们的总和而不是当前这一批的梯度，"
        "而且步幅越来越大。",
    ),
    "diverged": (
        "{cell}: {some} of {all} trials diverged{where}.",
        "{cell}：{all} 次试验中有 {some} 次发散{where}。",
    ),
    "diverged_where": (", at update {step} (median)", "，发生在第 {step} 次更新（中位数）"),
    "quality_none": (
        "{cell}: none of {all} trials reached {metric} {target}.",
        "{cell}：{all} 次试验都没有达到 {metric} {target}。",
    ),
    "quality": (
        "{cell}: {some} of {all} trials reached {metric} {target}, after {epochs} epochs and {seconds} s "
        "(medians).",
        "{cell}：{all} 次试验中有 {some} 次达到 {metric} {target}，"
        "用了 {epochs} 轮、{seconds} 秒（中位数）。",
    ),
    # Cost.
    "cost_of_train": (
        "{change}: {step} takes {times} µs per sample ({batches} ms per batch, {epochs} s per epoch), "
        "{ratio} times{reach} the time per sample",
        "{change}：{step}每个样本用时 {times} 微秒（每批 {batches} 毫秒，每轮 {epochs} 秒），"
        "每个样本的时间是 {ratio} 倍{reach}",
    ),
    "cost_of_inference": (
        "{change}: {step} takes {times} µs per sample ({batches} ms per batch, {epochs} s per pass), "
        "{ratio} times{reach} the time per sample",
        "{change}：{step}每个样本用时 {times} 微秒（每批 {batches} 毫秒，每遍 {epochs} 秒），"
        "每个样本的时间是 {ratio} 倍{reach}",
    ),
    "cost_noise": (
        " (the same cell measured twice differs by {floor})",
        "（同一组测两次相差 {floor}）",
    ),
    "cost_verdict": ("{cost}: {verdict}{noise}.", "{cost}：{verdict}{noise}。"),
    "processes_would_do": (
        "{needed} processes per cell would settle it.",
        "每组 {needed} 个进程可以得出结论。",
    ),
    "memory_change": (
        "{change}: {step} needs {sizes} MiB at its peak, {ratio} times.",
        "{change}：{step}的内存峰值为 {sizes} MiB，是原来的 {ratio} 倍。",
    ),
    "scaling_unfit": (
        "Time per batch of {mode}{at} does not follow a fixed cost plus a cost per sample: a size "
        "predicted from the others is off by up to {worst}.",
        "{mode}的每批时间{at}不符合“固定开销加每样本开销”："
        "由其他批大小预测某一批大小时，误差最大 {worst}。",
    ),
    "scaling_fit": (
        "{step}{at} costs {fixed} ms whatever the batch and {each} µs per sample; {check}.",
        "{step}{at}每批固定开销 {fixed} 毫秒，每个样本 {each} 微秒；{check}。",
    ),
    "scaling_unchecked": ("with two sizes this cannot be checked", "只有两种批大小，无法检验"),
    "scaling_checked": (
        "each size predicted from the others is off by at most {worst}",
        "由其他批大小预测每一种，误差不超过 {worst}",
    ),
    "scaling_enough": (
        "Beyond batch {enough}, doubling gains less than 10 %.",
        "批大小超过 {enough} 后，再加倍的收益不足 10 %。",
    ),
    "scaling_beyond": (
        "At batch {largest}, the largest measured, doubling still gains more than 10 %.",
        "在测过的最大批大小 {largest} 处，再加倍仍有超过 10 % 的收益。",
    ),
    "dominates_both": (
        "In {mode}{at}, {operator} takes {share_a} of a step at batch {first} and {share_b} at batch "
        "{second}: it dominates at both.",
        "在{mode}中{at}，{operator} 在批大小 {first} 时占 {share_a}，在批大小 {second} 时占 {share_b}："
        "两处都占首位。",
    ),
    "dominates_one": (
        "In {mode}{at}, {operator} takes {share_a} of a step at batch {first} and {share_b} at batch "
        "{second}; at batch {first} {other} comes first, with {other_share}.",
        "在{mode}中{at}，{operator} 在批大小 {first} 时占 {share_a}，在批大小 {second} 时占 {share_b}；"
        "批大小 {first} 时首位是 {other}，占 {other_share}。",
    ),
    "growth": (
        "In {mode}{at}, one {operator} takes {averages} µs from batch {first} to {second}: {time} times "
        "the time for {work} times the work.",
        "在{mode}中{at}，批大小从 {first} 到 {second}，每次 {operator} 用时 {averages} 微秒："
        "工作量为 {work} 倍，时间为 {time} 倍。",
    ),
    "optimizer_share": (
        "The optimizer takes {share_a} of {step}{at} at batch {first} and {share_b} at batch {second}.",
        "优化器{at}在批大小 {first} 时占{step}的 {share_a}，在批大小 {second} 时占 {share_b}。",
    ),
    # Probes.
    "gradient_vanishes": (
        "{cell}: the gradient at {layer} is {ratio} times that at {other}, per element{reach} ({seeds}): "
        "it vanishes on its way back.",
        "{cell}：{layer} 处每个元素的梯度是 {other} 处的 {ratio} 倍{reach}（{seeds}）："
        "梯度在回传途中消失。",
    ),
    "gradient_not_finite": (
        "{cell}: the gradient at {layer} was not finite in {some} of {all} trials, first at update "
        "{step} (median).",
        "{cell}：{layer} 处的梯度在 {all} 次试验中有 {some} 次不是有限数，"
        "最早在第 {step} 次更新（中位数）。",
    ),
    "gradient_grew": (
        "{cell}: the gradient at {layer} grew {ratio} times{reach} while training ({seeds}).",
        "{cell}：{layer} 处的梯度在训练中增大到 {ratio} 倍{reach}（{seeds}）。",
    ),
    "gradient_explodes": (
        "{cell}: the gradient at {layer} is {ratio} times{reach} that at {other}, per element ({seeds}).",
        "{cell}：{layer} 处的梯度每个元素是 {other} 处的 {ratio} 倍{reach}（{seeds}）。",
    ),
    "gradient_accumulates": (
        "{cell}: gradients are never reset; the norm at {layer} grows {times} times from update {first} "
        "to {last}, as the {exponent} power of the step{reach} ({seeds}).",
        "{cell}：梯度从不清零；{layer} 处的范数从第 {first} 次到第 {last} 次更新增大到 {times} 倍，"
        "按步数的 {exponent} 次幂增长{reach}（{seeds}）。",
    ),
    "units_dead": (
        "{cell}: {share} of the units of {layer} never fired in epoch {epoch} ({seeds}).",
        "{cell}：{layer} 有 {share} 的单元在第 {epoch} 轮中从未激活（{seeds}）。",
    ),
    "update_above": (
        "{cell}: an update of {layer} is {ratio} of the weight{reach}, above the healthy {low} to {high} "
        "({seeds}).",
        "{cell}：{layer} 每次更新是权重的 {ratio}{reach}，高于健康范围 {low} 至 {high}（{seeds}）。",
    ),
    "update_below": (
        "{cell}: an update of {layer} is {ratio} of the weight{reach}, below the healthy {low} to {high} "
        "({seeds}).",
        "{cell}：{layer} 每次更新是权重的 {ratio}{reach}，低于健康范围 {low} 至 {high}（{seeds}）。",
    ),
    # What cannot be told.
    "unstable": (
        "{some} of {all} cost measurements are unstable ({cells}), the first because {warning}.",
        "{all} 项开销测量中有 {some} 项不稳定（{cells}），其中第一项的原因：{warning}。",
    ),
    "undecided": (
        "{some} of {all} comparisons cannot be told from noise.",
        "{all} 项比较中有 {some} 项无法与噪声区分。",
    ),
    "undecidable": (
        "{seeds} can never show a difference here; at least {fewest} can.",
        "{seeds}在这里永远无法证明差异，至少需要 {fewest} 个。",
    ),
    "unfinished": (
        "Only {some} of {all} trials ended well ({states}): what follows is from those.",
        "{all} 次试验中只有 {some} 次正常结束（{states}）：以下结论只依据这些试验。",
    ),
    "trials_in_state": ("{number} {state}", "{number} 次{state}"),
}
