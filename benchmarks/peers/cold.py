"""What the first import costs, beside an interpreter that imports nothing."""

from __future__ import annotations

import subprocess
import sys
import time

REPEATS = 15
PROGRAMS = {
    "bare": "pass",
    "import gnl_core": "import gnl_core",
    "from gnl_core import run_durable, tool, SqliteStorage": "from gnl_core import run_durable, tool, SqliteStorage",
}


def import_times() -> dict[str, list[float]]:
    """Return the wall times in seconds of whole processes, taken in turns, the first of each left out."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(REPEATS + 1):
        for name, program in PROGRAMS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in times.items()}
