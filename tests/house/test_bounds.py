"""Each bound in README names a test that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BOUNDS = README[README.index("**Of repeats.**") : README.index("**What this is not.**")]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", BOUNDS)


def names_in(path):
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_bound_names_a_test_that_is_there():
    lines = [line for line in BOUNDS.splitlines() if line.startswith("| ")][2:]
    assert len(lines) >= 12
    assert not [line for line in lines if "::test_" not in line]
    assert not [(path, name) for path, name in NAMED if name not in names_in(path)]
