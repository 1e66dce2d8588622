"""Knows no arguments, and holds a file open when it is told so; a thread goes on by itself."""

import argparse
import atexit
import sys
import threading
import time
from pathlib import Path

unfinished = Path("unfinished.txt").open("w")  # noqa: SIM115  what is tested
unfinished.write("all of it")
argparse.holder = sys.modules[__name__]  # as libraries hold a script that they have compiled
atexit.register(lambda: print("the end"))


def speak_last():
    time.sleep(0.5)
    Path("last.txt").write_text("heard")


threading.Thread(target=speak_last).start()
argparse.ArgumentParser().parse_args()
