"""Findings as Chinese sentences. Every number comes from the finding."""

from collections.abc import Callable

from trainlab.analyse.finding import Finding, Kind, Number
from trainlab.report.numbers import (
    bare_operator,
    count,
    figure,
    level,
    metric_difference,
    metric_value,
    p_value,
    percent,
)
from trainlab.report.warnings import warning_in_chinese

POINTS = "个百分点"
FIRST_PERIOD = "its first period"
MODES = {"train": "训练步", "inference": "推理步"}
STATES = {"failed": "失败", "interrupted": "中断", "pending": "未运行"}


def sentence(found: Finding) -> str:
    """One or two sentences; what else differed between the cells is named at the end."""
    told = SENTENCES[found.kind](found)
    if found.confounds:
        told += f"注意：以下各项也不同：{'；'.join(found.confounds)}。"
    return told


def _change(found: Finding) -> str:
    if found.levels == (None, None):
        return f"{found.cells[0]} → {found.cells[1]}"
    first, second = (level(one) for one in found.levels)
    told = f"{(found.factor or '').removeprefix('model.')} {first} → {second}"
    return f"{told}{_at(found)}"


def _at(found: Finding) -> str:
    """Which of several such comparisons it is."""
    factor = (found.factor or "").removeprefix("model.")
    parts = found.cells[1].split(",")
    rest = "，".join(p for p in parts if p != "base" and not p.startswith(f"{factor}="))
    return f"（{rest}）" if rest else ""


def _effect(found: Finding) -> str:
    numbers, metric = found.numbers, found.subject
    if numbers["mean_a"] is None or numbers["difference"] is None:
        return f"{_change(found)}：{metric} 无法比较，没有一个种子在两组中都正常结束。"
    means = " → ".join(metric_value(metric, _number(numbers[k])) for k in ("mean_a", "mean_b"))
    start = f"{_change(found)}：{metric} 为 {means}（{found.n} 个种子的均值）"
    difference = metric_difference(metric, _number(numbers["difference"]), POINTS)
    reach = ""
    if found.interval is not None:
        low, high = (
            metric_difference(metric, v, POINTS) for v in (found.interval.low, found.interval.high)
        )
        reach = f"［95 %：{low} 至 {high}］"
    if found.verdict == "different":
        return f"{start}：有差异，相差 {difference}{reach}，{p_value(_number(numbers['p']))}。"
    if found.verdict == "equivalent":
        margin = metric_difference(metric, _number(numbers["margin"]), POINTS).lstrip("+")
        return f"{start}：在 {margin} 之内等同；差值为 {difference}{reach}。"
    return f"{start}：无法判断；差值为 {difference}{reach}。{_seeds(found)}"


def _seeds(found: Finding) -> str:
    fewest, needed = found.numbers.get("fewest_seeds"), found.numbers.get("seeds_needed")
    if isinstance(fewest, int) and found.n < fewest:
        return f"{found.n} 个种子无法证明任何差异，至少需要 {fewest} 个。"
    if isinstance(needed, int):
        return f"如果差异属实，大约 {needed} 个种子可以得出结论。"
    return ""


def _no_reset(found: Finding) -> str:
    return (
        f"{_effect(found)}不清零时，以往各批的梯度不断累加，每次更新跟随的是它们的总和而不是"
        "当前这一批的梯度，而且步幅越来越大。"
    )


def _diverged(found: Finding) -> str:
    gone, step = found.numbers["num_diverged"], found.numbers["median_step"]
    where = "" if step is None else f"，发生在第 {count(_number(step))} 次更新（中位数）"
    return f"{found.cells[0]}：{found.n} 次试验中有 {gone} 次发散{where}。"


def _quality(found: Finding) -> str:
    target = metric_value(found.subject, _number(found.numbers["target"]))
    reached, cell = found.numbers["num_reached"], found.cells[0]
    if not reached:
        return f"{cell}：{found.n} 次试验都没有达到 {found.subject} {target}。"
    epoch, seconds = _number(found.numbers["median_epoch"]), _number(found.numbers["median_s"])
    return (
        f"{cell}：{found.n} 次试验中有 {reached} 次达到 {found.subject} {target}，"
        f"用了 {count(epoch)} 轮、{figure(seconds)} 秒（中位数）。"
    )


def _cost(found: Finding) -> str:
    numbers = found.numbers
    times = " → ".join(figure(_number(numbers[k])) for k in ("sample_us_a", "sample_us_b"))
    batches = " → ".join(figure(_number(numbers[k])) for k in ("step_ms_a", "step_ms_b"))
    epochs = " → ".join(figure(_number(numbers[k])) for k in ("epoch_s_a", "epoch_s_b"))
    step = MODES[found.subject.partition("/")[0]]
    ratio = f"{figure(_number(numbers['ratio']))} 倍"
    if found.interval is not None:
        ratio += f"［95 %：{figure(found.interval.low)} 至 {figure(found.interval.high)}］"
    whole = "每轮" if found.subject.startswith("train") else "每遍"
    start = (
        f"{_change(found)}：{step}每个样本用时 {times} 微秒（每批 {batches} 毫秒，{whole} {epochs} 秒），"
        f"每个样本的时间是 {ratio}"
    )
    floor = numbers["noise_floor"]
    noise = "" if floor is None else f"（同一组测两次相差 {percent(_number(floor))}）"
    if found.verdict == "different":
        return f"{start}：有差异{noise}。"
    if found.verdict == "equivalent":
        return f"{start}：等同{noise}。"
    needed = numbers["processes_needed"]
    more = f"每组 {needed} 个进程可以得出结论。" if isinstance(needed, int) else ""
    return f"{start}：无法判断{noise}。{more}"


def _memory(found: Finding) -> str:
    sizes = " → ".join(figure(_number(found.numbers[k])) for k in ("mib_a", "mib_b"))
    step = MODES[found.subject.partition("/")[0]]
    ratio = figure(_number(found.numbers["ratio"]))
    return f"{_change(found)}：{step}的内存峰值为 {sizes} MiB，是原来的 {ratio} 倍。"


def _scaling(found: Finding) -> str:
    numbers, mode = found.numbers, found.subject.partition("/")[0]
    fixed, each = figure(_number(numbers["fixed_ms"])), figure(_number(numbers["per_sample_us"]))
    worst = numbers["worst_error"]
    if numbers["fit"] == "does not fit":
        return (
            f"{MODES[mode]}{_at(found)}的每批时间不符合“固定开销加每样本开销”：由其他批大小预测某一批大小时，"
            f"误差最大 {percent(_number(worst))}。"
        )
    check = (
        "；只有两种批大小，无法检验"
        if worst is None
        else f"；由其他批大小预测每一种，误差不超过 {percent(_number(worst))}"
    )
    enough = numbers["enough"]
    end = (
        ""
        if enough is None
        else f"批大小超过 {figure(_number(enough))} 后，再加倍的收益不足 10 %。"
    )
    return f"{MODES[mode]}{_at(found)}每批固定开销 {fixed} 毫秒，每个样本 {each} 微秒{check}。{end}"


def _dominates(found: Finding) -> str:
    numbers = found.numbers
    first, second = (level(one) for one in found.levels)
    shares = [percent(_number(numbers[key])) for key in ("share_a", "share_b")]
    mode = MODES[str(numbers["mode"])]
    told = (
        f"在{mode}{_at(found)}中，{bare_operator(found.subject)} 在批大小 {first} 时占 {shares[0]}，"
        f"在批大小 {second} 时占 {shares[1]}"
    )
    if numbers["first_a"] == found.subject:
        return f"{told}：两处都占首位。"
    share = percent(_number(numbers["first_share_a"]))
    first_name = bare_operator(str(numbers["first_a"]))
    return f"{told}；批大小 {first} 时首位是 {first_name}，占 {share}。"


def _growth(found: Finding) -> str:
    numbers = found.numbers
    first, second = (level(one) for one in found.levels)
    averages = " → ".join(figure(_number(numbers[k])) for k in ("average_us_a", "average_us_b"))
    return (
        f"在{MODES[str(numbers['mode'])]}{_at(found)}中，批大小从 {first} 到 {second}，每次 "
        f"{bare_operator(found.subject)} 用时 {averages} 微秒：工作量为 "
        f"{figure(_number(numbers['work']), 2)} 倍，时间为 {figure(_number(numbers['time']), 2)} 倍。"
    )


def _optimizer_share(found: Finding) -> str:
    first, second = (level(one) for one in found.levels)
    a, b = (percent(_number(found.numbers[k])) for k in ("share_a", "share_b"))
    return f"优化器{_at(found)}在批大小 {first} 时占训练步的 {a}，在批大小 {second} 时占 {b}。"


def _vanishing(found: Finding) -> str:
    numbers = found.numbers
    return (
        f"{found.cells[0]}：{found.subject} 处每个元素的梯度是 {numbers['compared_with']} 处的 "
        f"{figure(_number(numbers['ratio']))} 倍{_reach(found)}（{found.n} 个种子）：梯度在回传途中消失。"
    )


def _exploding(found: Finding) -> str:
    numbers, start = found.numbers, f"{found.cells[0]}：{found.subject} 处的梯度"
    if "num_not_finite" in numbers:
        step = count(_number(numbers["median_step"]))
        some = numbers["num_not_finite"]
        return f"{start}在 {found.n} 次试验中有 {some} 次不是有限数，最早在第 {step} 次更新（中位数）。"
    ratio = f"{figure(_number(numbers['ratio']))} 倍{_reach(found)}"
    if numbers["compared_with"] == FIRST_PERIOD:
        return f"{start}在训练中增大到 {ratio}（{found.n} 个种子）。"
    return f"{start}每个元素是 {numbers['compared_with']} 处的 {ratio}（{found.n} 个种子）。"


def _accumulation(found: Finding) -> str:
    numbers = found.numbers
    first, last = (count(_number(numbers[key])) for key in ("first_step", "last_step"))
    return (
        f"{found.cells[0]}：梯度从不清零；{found.subject} 处的范数从第 {first} 次到第 {last} 次更新增大到 "
        f"{figure(_number(numbers['times']))} 倍，按步数的 {figure(_number(numbers['exponent']))} 次幂增长"
        f"{_reach(found)}（{found.n} 个种子）。"
    )


def _dead_units(found: Finding) -> str:
    numbers = found.numbers
    return (
        f"{found.cells[0]}：{found.subject} 有 {percent(_number(numbers['share']))} 的单元在第 "
        f"{numbers['epoch']} 轮中从未激活（{found.n} 个种子）。"
    )


def _update_ratio(found: Finding) -> str:
    numbers = found.numbers
    low, high = (figure(_number(numbers[key])) for key in ("healthy_low", "healthy_high"))
    side = "低于" if numbers["side"] == "below" else "高于"
    return (
        f"{found.cells[0]}：{found.subject} 每次更新是权重的 {figure(_number(numbers['ratio']))}"
        f"{_reach(found)}，{side}健康范围 {low} 至 {high}（{found.n} 个种子）。"
    )


def _reach(found: Finding) -> str:
    if found.interval is None:
        return ""
    return f"［95 %：{figure(found.interval.low)} 至 {figure(found.interval.high)}］"


def _unstable(found: Finding) -> str:
    numbers = found.numbers
    warning = warning_in_chinese(str(numbers["warning"]))
    return (
        f"{numbers['num_measured']} 项开销测量中有 {numbers['num_unstable']} 项不稳定"
        f"（{'，'.join(found.cells)}），其中第一项的原因：{warning}。"
    )


def _undecided(found: Finding) -> str:
    numbers = found.numbers
    told = f"{numbers['num_tested']} 项比较中有 {numbers['num_open']} 项无法与噪声区分"
    fewest, seeds = numbers["fewest_seeds"], numbers["seeds"]
    if isinstance(fewest, int) and isinstance(seeds, int) and seeds < fewest:
        return f"{told}。{seeds} 个种子在这里永远无法证明差异，至少需要 {fewest} 个。"
    return f"{told}。"


def _unfinished(found: Finding) -> str:
    numbers = found.numbers
    parts = [
        f"{numbers[f'num_{state}']} 次{told}"
        for state, told in STATES.items()
        if numbers[f"num_{state}"]
    ]
    return (
        f"{numbers['num_planned']} 次试验中只有 {numbers['num_done']} 次正常结束"
        f"（{'，'.join(parts)}）：以下结论只依据这些试验。"
    )


def _number(value: Number) -> float:
    assert isinstance(value, int | float)
    return value


SENTENCES: dict[Kind, Callable[[Finding], str]] = {
    "effect": _effect,
    "no_reset": _no_reset,
    "diverged": _diverged,
    "quality": _quality,
    "cost": _cost,
    "memory": _memory,
    "scaling": _scaling,
    "dominates": _dominates,
    "growth": _growth,
    "optimizer_share": _optimizer_share,
    "vanishing_gradient": _vanishing,
    "exploding_gradient": _exploding,
    "accumulation": _accumulation,
    "dead_units": _dead_units,
    "update_ratio": _update_ratio,
    "unstable": _unstable,
    "undecided": _undecided,
    "unfinished": _unfinished,
}
