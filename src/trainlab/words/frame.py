"""The frame of a report: headings, buttons, marks, notices, the answer."""

FRAME = {
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
}
