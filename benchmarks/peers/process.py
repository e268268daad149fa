"""The coordinator's end of a peer's process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]


class Process:
    """One contender's process, started at once; `missing` says why it cannot take part."""

    def __init__(self, name: str, folder: Path, module: str = "peers.worker") -> None:
        self.name, self.folder = name, folder
        self.log = (folder / f"{name}.log").open("w+", encoding="utf-8")
        self.turn = 0
        self.child = subprocess.Popen(
            [sys.executable, "-m", module, name],
            cwd=BENCHMARKS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.missing: str | None = self._read().get("missing")

    def ask(self, what: str, steps: int, **more: object) -> dict[str, Any]:
        """Have it do something in a folder of its own and return its answer."""
        assert self.child.stdin is not None
        self.turn += 1
        command = {"do": what, "steps": steps, "folder": str(self.folder / f"{self.name}-{self.turn}"), **more}
        self.child.stdin.write(json.dumps(command) + "\n")
        self.child.stdin.flush()
        return self._read()

    def kill(self) -> dict[str, Any]:
        """Return what a kill between the effect and its record comes to."""
        folder = self.folder / f"{self.name}-kill"
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "peers.kill", self.name, str(folder)],
            cwd=BENCHMARKS,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            self._fail("the kill")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def close(self) -> None:
        """End the process."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.log.close()

    def _read(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            self._fail("a round")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self, what: str) -> None:
        self.log.seek(0)
        tail = "".join(self.log.readlines()[-20:])
        raise SystemExit(f"{self.name} did not come through {what}:\n{tail}")
