"""Error lines in Chinese: what parts they are made of, and that the parts are those the code says."""

import ast
import re
import tomllib
from pathlib import Path

import trainlab
from trainlab.words.error_lines import HOLE, error_line

SOURCE = Path(trainlab.__file__).parent
PARTS: dict[str, str] = {
    english: chinese
    for table in tomllib.loads((SOURCE / "words/errors.toml").read_text(encoding="utf-8")).values()
    for english, chinese in table.items()
}
FROM_ELSEWHERE = ["Field required", "Input should be {text}", "SyntaxError: {text}"]
"""What pydantic and Python say."""


def told(line: str) -> str:
    return error_line(line, "zh")


def test_a_part_has_the_same_holes_in_both_languages() -> None:
    for part, chinese in PARTS.items():
        assert sorted(HOLE.findall(part)) == sorted(HOLE.findall(chinese)), part


def said_in_source() -> str:
    """Every text in the code, with what is filled into it left out."""
    texts = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_every_part_is_something_the_code_says() -> None:
    said = said_in_source()

    def is_said(part: str) -> bool:
        """Whether a piece of it is: the code puts some parts together."""
        pieces = [piece.strip() for piece in re.split(r"\{\w+\}|[,:;] |which |\d", part)]
        return any(len(piece) > 3 and piece in said for piece in pieces)

    assert [part for part in PARTS if not is_said(part)] == FROM_ELSEWHERE


TRANSLATED = """
--epochs: got '0', must be greater than 0
--epochs：给出的是 '0'，必须大于 0
--data-parallel: got 9, but this machine has 2 CPUs for them; use at most 2
--data-parallel：给出的是 9，但本机只有 2 个 CPU 可用；最多用 2
processes: got 2, but engine lanes trains in one; use engine auto or eager
processes：给出的是 2，但引擎 lanes 只在一个进程中训练；请用 engine auto 或 eager
--port: cannot listen at 127.0.0.1:8420: Address already in use; choose another
--port：无法监听 127.0.0.1:8420：Address already in use；请换一个
notes.txt: is a file; name a folder of runs, as runs
notes.txt：是一个文件；请给出存放运行的文件夹，如 runs
trials/a: is a link or a pipe; copy the run whole
trials/a：是链接或管道；请完整复制该运行
processes: number 2 of 2 was ended by SIGKILL; its error is in the log
processes：第 2 个进程（共 2 个）被 SIGKILL 结束；错误见日志
s.toml: lr: got [0.1, 0.2], must be a number
s.toml：lr：给出的是 [0.1, 0.2]，必须是数
--design: got 'gird', must be one of grid, one-at-a-time; did you mean grid?
--design：给出的是 'gird'，必须是以下之一：grid, one-at-a-time；是否想写 grid？
a.json: line 3: is not JSON: x; y
a.json：第 3 行：不是有效的 JSON：x; y
workload 'x' is not known; did you mean y?; your own is FILE.py:NAME
没有工作负载 'x'；是否想写 y？自己的写作 FILE.py:NAME
name: got 'is required', must be a text
name：给出的是 'is required'，必须是文本
--epochs: got '0', must be greater than 0; ask your neighbour
--epochs: got '0', must be greater than 0; ask your neighbour
"""
"""A line, and below it what it becomes: values stay, and a line with an unknown part stays as it is."""


def test_parts_are_translated_wherever_they_stand() -> None:
    lines = TRANSLATED.strip().splitlines()
    assert [told(line) for line in lines[::2]] == lines[1::2]
    assert error_line("--lr: is required", "en") == "--lr: is required"


OF_SCRIPTS = [
    "a.py:3: is no Python: invalid syntax; run it by itself first",
    "--metric: got 'x', must be NAME=PATTERN, as 'accuracy=Accuracy: ([0-9.]+)'",
    "metrics.acc: got '(', which is no regular expression: missing ), unterminated subpattern",
    "--seed: is among the script's arguments, so that every seed would be the same; "
    "leave it out, and give --seeds",
    "--try: got 'without=abc', must have a whole number, as without=1",
    "the script made no update that could be seen; does it train, with these arguments?",
    "the script ended with exit code 2, and printed last: train.py: error: no such option: --b",
    "--vary batchsize: the script has no option --batchsize; did you mean batch-size?",
    "the script's process was ended by SIGKILL; memory may have run out",
    "train.py:12: script raised ValueError: bad thing",
    "train.py: failed with ValueError: bad; worse: no; run it by itself first",
    "train.py: too few updates were seen to say what limits it; give it more data or epochs",
    "--try: batch_size=3: the script's text shows no argument for it, as --batch-size",
    "probe fcc:grad:norm: 'fcc' reaches no layer; did you mean fc?; there are fc, conv1, …",
]


def test_what_goes_wrong_with_a_script_is_told_in_chinese() -> None:
    for line in OF_SCRIPTS:
        assert re.search(r"[\u4e00-\u9fff]", told(line)), line
