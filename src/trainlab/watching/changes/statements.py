"""One statement of a script, run once and then no more."""

import ast
import builtins
import sys
from pathlib import Path

from trainlab.watching.changes.change import Change, ChangeError

ONCE = "_trainlab_is_first"
"""The name by which the script's code asks whether to run the statement."""
MARK = "_trainlab_has_run"


def without_statement(change: Change, script: Path) -> None:
    """The statement that begins at that line runs the first time only, so that names that it sets are
    there."""
    line = change.number
    tree = ast.parse(script.read_bytes(), str(script))
    cut = _Cut(line)
    changed = ast.fix_missing_locations(cut.visit(tree))
    if not cut.is_found:
        raise ChangeError(f"without: line {line} begins no statement that can be left out")

    def is_first() -> bool:
        change.num_uses += 1
        # A script that runs again in this process has new names, the mark is among them.
        names = sys._getframe(1).f_globals
        is_new = MARK not in names
        names[MARK] = True
        return is_new

    change.put(builtins, ONCE, is_first)
    change.code = compile(changed, str(script), "exec", dont_inherit=True)


class _Cut(ast.NodeTransformer):
    """Puts `if _trainlab_is_first():` before a statement."""

    def __init__(self, line: int) -> None:
        self._line, self.is_found = line, False

    def _guarded(self, node: ast.stmt) -> ast.stmt:
        if self.is_found or node.lineno != self._line:
            return node
        self.is_found = True
        asked = ast.Call(ast.Name(ONCE, ast.Load()), [], [])
        return ast.copy_location(ast.If(asked, [node], []), node)

    visit_Expr = visit_Assign = visit_AugAssign = visit_AnnAssign = _guarded  # noqa: N815  ast's names
