"""The wheel holds everything: built, installed outside the tree, imported, its data read."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, pathlib, pkgutil, sys
from importlib.metadata import distribution, requires
from importlib.resources import files

outside = pathlib.Path(sys.prefix).resolve()
for package in ("gnl_core", "gnl_semantic", "gnl_qualify", "gnl_reports", "gnl_fixtures"):
    module = importlib.import_module(package)
    assert pathlib.Path(module.__file__).resolve().is_relative_to(outside), module.__file__
    assert (files(package) / "py.typed").is_file(), package
    for info in pkgutil.walk_packages(module.__path__, package + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
from gnl_fixtures import load_shipped
assert [len(load_shipped(name).pairs) for name in ("heldout", "calibration")] == [833, 2032]
assert (files("gnl_fixtures") / "SITTINGS.md").is_file()
assert list((files("gnl_reports") / "templates").iterdir())
assert (files("gnl_core.journal") / "lua" / "apply.lua").is_file()
for bare in ("reports", "fixtures", "qualify", "tests", "benchmarks"):
    assert importlib.util.find_spec(bare) is None, bare
assert any(str(f).endswith("licenses/NOTICE") for f in distribution("gnl-semantic").files)
print("all imported")
"""


def test_the_wheel_works_in_a_clean_environment_outside_the_tree(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    home = tmp_path / "a clean place"
    venv.create(home, with_pip=False, symlinks=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--quiet", "--target", str(purelib)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    # The dependencies come from here; a path in a .pth file brings no editable install with it.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = home / "bin" / "python"
    done = subprocess.run([python, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "all imported"
    # A script that pip wrote with --target runs the test's Python, so the program is started as a module.
    done = subprocess.run(
        [python, "-m", "gnl_qualify", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--judge" in done.stdout
