"""Imports run one way: qualify -> reports -> gnl_semantic -> gnl_core; fixtures read the core alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "gnl_core": ("gnl_core", set()),
    "gnl_semantic": ("gnl_semantic", {"gnl_core", "gnl_fixtures"}),
    "gnl_fixtures": ("fixtures/gnl_fixtures", {"gnl_core"}),
    "gnl_reports": ("reports/gnl_reports", {"gnl_core", "gnl_semantic", "gnl_fixtures"}),
    "gnl_qualify": ("qualify/gnl_qualify", {"gnl_core", "gnl_semantic", "gnl_fixtures", "gnl_reports"}),
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below(room):
    folder, allowed = ROOMS[room]
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        for module, line in imported(path):
            top = module.partition(".")[0]
            assert top not in ROOMS.keys() - allowed - {room}, f"{path.relative_to(ROOT)}:{line} imports {module}"
            assert top not in {"tests", "qualify", "reports", "fixtures", "benchmarks"}, f"{path}:{line}"


def test_the_gates_and_keys_of_later_rooms_stay_out_of_the_embedder():
    for path in (ROOT / "gnl_semantic" / "embedder").rglob("*.py"):
        assert not [m for m, _ in imported(path) if m.startswith("gnl_semantic.judge")], path
