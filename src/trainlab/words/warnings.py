"""What a measurement says about its own stability: records hold it in English."""

WARNINGS = (
    (
        r"processes differ by (\S+): quiet the machine, or measure more of them",
        "各进程相差 {0}：请让机器空闲下来，或测量更多进程",
    ),
    (
        r"steps of one process spread by (\S+): something else is running",
        "一个进程的各步分散达 {0}：有其他程序在运行",
    ),
    (
        r"steps drift by (\S+) within a process: warm up for longer",
        "一个进程内步时间漂移 {0}：请延长预热",
    ),
    (
        r"other processes used (\S+) cores meanwhile: close them and repeat",
        "测量时其他进程占用了 {0} 个核：请关闭它们后重测",
    ),
    (
        r"the host took (\S+) cores away meanwhile: repeat when it is quieter",
        "测量时宿主机占走了 {0} 个核：请在空闲时重测",
    ),
)
"""What an unstable measurement says about itself, and the same in Chinese."""
