"""Imports run one way: qualify -> reports -> gnl_semantic -> gnl_core; fixtures read the core alone.

Inside the core they do as well: a store, a model or a gate can be read, tested and replaced without the engine.
"""

import ast
from graphlib import CycleError, TopologicalSorter
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


# Inside the core ---------------------------------------------------------------------------------------------------


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


CORE = {module_of(path): path for path in sorted((ROOT / "gnl_core").rglob("*.py"))}


def for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(body, *, functions):
    """Every statement that runs: when the module is loaded, or when a function is called too."""
    for node in body:
        if for_types_only(node):
            yield from statements(node.orelse, functions=functions)
            continue
        if not functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []), functions=functions)
        for inner in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            yield from statements(inner.body, functions=functions)


def core_imports(source, *, functions):
    """The modules of the core that a module's text imports."""
    found = set()
    for node in statements(ast.parse(source).body, functions=functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            # `from gnl_core import keys` loads the module keys; `from gnl_core.keys import lock` a name of it.
            found |= inner & CORE.keys() or {node.module}
    return {name for name in found if name.partition(".")[0] == "gnl_core"}


def lies_in(module, rooms):
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def of(*names):
    return [f"gnl_core.{name}" for name in names]


ENGINE = of("run", "admission", "drive", "step", "call", "walk", "execute", "body", "request", "closing", "stream")


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("gnl_core.journal", of("journal", "errors", "keys")),
        ("gnl_core.model", of("model", "errors", "journal.port")),
    ],
)
def test_a_store_or_a_model_knows_nothing_of_the_engine(room, allowed):
    modules = [name for name in CORE if lies_in(name, [room])]
    assert modules
    for name in modules:
        strange = [one for one in core_imports(CORE[name].read_text(), functions=True) if not lies_in(one, allowed)]
        assert not strange, f"{name} imports {strange}"


def test_a_gate_rules_and_starts_nothing():
    gates = [name for name in CORE if lies_in(name, ["gnl_core.gates"])]
    assert gates
    for name in gates:
        started = [one for one in core_imports(CORE[name].read_text(), functions=True) if lies_in(one, ENGINE)]
        assert not started, f"{name} imports {started}"


@pytest.mark.parametrize("room", ["gnl_core.cli", "gnl_core.testing"])
def test_what_stands_on_the_core_is_not_stood_on(room):
    for name, path in CORE.items():
        if not lies_in(name, [room, "gnl_core.cli"]):
            above = [one for one in core_imports(path.read_text(), functions=True) if lies_in(one, [room])]
            assert not above, f"{name} imports {above}"


def test_no_module_needs_itself_to_be_loaded():
    graph = {name: core_imports(path.read_text(), functions=False) & CORE.keys() for name, path in CORE.items()}
    assert sum(map(len, graph.values())) > len(CORE)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_search_sees_what_runs_and_not_what_is_for_types():
    source = """
from typing import TYPE_CHECKING
from gnl_core import keys
if TYPE_CHECKING:
    from gnl_core.run import run_durable
try:
    import gnl_core.errors
except ImportError:
    from gnl_core.records import read_call
def late():
    from gnl_core.drive import Drive
"""
    at_load = {"gnl_core.keys", "gnl_core.errors", "gnl_core.records"}
    assert core_imports(source, functions=False) == at_load
    assert core_imports(source, functions=True) == {*at_load, "gnl_core.drive"}
