"""Knows no arguments, and holds a file open when it is told so."""

import argparse
import atexit
import sys
from pathlib import Path

unfinished = Path("unfinished.txt").open("w")  # noqa: SIM115  what is tested
unfinished.write("all of it")
argparse.holder = sys.modules[__name__]  # as libraries hold a script that they have compiled
atexit.register(lambda: print("the end"))
argparse.ArgumentParser().parse_args()
