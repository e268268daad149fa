"""The lab: a warmed parent that forks processes to be killed, and the handle by which tests drive it."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import pytest_asyncio

from gnl_core import SqliteStorage
from gnl_core.testing.effects import EffectLog

HUNG = 120.0


class Job:
    """A child at work."""

    def __init__(self, lab, number, talk):
        self.lab, self.number, self.talk = lab, number, talk
        self.pid = lab.read(number, "pid")

    def wait(self):
        """Return (exit status, answer)."""
        said = self.lab.read(self.number, "status", whole=True)
        return said["status"], said["answer"]

    def answer(self):
        """Return what the child's function returned; it must have lived."""
        status, answer = self.wait()
        assert status == 0, f"a child ended with {status}: {self.talk.read_text()}"
        return answer

    def killed(self):
        """The child must have died of its fault."""
        status, _ = self.wait()
        assert status == 9, f"a child was to be killed and ended with {status}: {self.talk.read_text()}"

    def signal(self, number):
        os.kill(self.pid, number)


class Lab:
    """Forks a child for each call of a function of fault_children."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        self.said = []
        self.errors = (folder / "server.txt").open("w+")
        self.server = subprocess.Popen(
            [sys.executable, "-W", "error", str(Path(__file__).with_name("fault_server.py")), str(folder / "warm.txt")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        self.heard = b""
        if not self.line():
            self.close()
            pytest.fail(f"the fault server did not start: {(folder / 'server.txt').read_text()}")

    def start(self, do, **args):
        self.count += 1
        talk = self.folder / f"{self.count}.txt"
        request = {"id": self.count, "do": do, "args": args, "talk": str(talk)}
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()
        return Job(self, self.count, talk)

    def run(self, do, **args):
        return self.start(do, **args).answer()

    def read(self, number, member, *, whole=False):
        while True:
            for said in self.said:
                if said["id"] == number and member in said:
                    self.said.remove(said)
                    return said if whole else said[member]
            line = self.line()
            assert line, f"the fault server ended, or said nothing for {HUNG:g} s"
            self.said.append(json.loads(line))

    def line(self):
        """Return the server's next line; b'' when it ended, or stays silent."""
        while b"\n" not in self.heard:
            ready, _, _ = select.select([self.server.stdout], [], [], HUNG)
            chunk = os.read(self.server.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                return b""
            self.heard += chunk
        line, _, self.heard = self.heard.partition(b"\n")
        return line

    def close(self):
        self.server.stdin.close()
        self.server.wait(timeout=HUNG)
        self.server.stdout.close()
        self.errors.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture
def place():
    """A folder in memory where there is one: journals are synced at every write."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


class Run:
    """One scenario on one journal, driven by a new process at each call."""

    def __init__(self, lab, scenario, folder):
        self.lab, self.scenario, self.folder = lab, scenario, Path(folder)

    def start(self, **options):
        return self.lab.start("drive", scenario=self.scenario, folder=str(self.folder), **options)

    def drive(self, **options):
        """Drive it; return what came of it as fault_children.told() describes it."""
        return self.start(**options).answer()

    def die(self, **fault):
        """Drive it to its death."""
        self.start(fault=fault).killed()

    def decide(self, question, approved, **options):
        return self.lab.run("answer", folder=str(self.folder), question=question, approved=approved, **options)

    def open_questions(self):
        return self.lab.run("open_questions", folder=str(self.folder))

    def rows(self):
        """Every row of the journal as [key, value, version]."""
        return self.lab.run("rows", folder=str(self.folder))

    def record(self, call):
        """The newest record of a call, None where there is none."""
        step, position = (int(part) for part in call[1:].split("p"))
        tail = ["tool", f"{step:06d}", f"{position:03d}"]
        return next((value for key, value, _ in self.rows() if key[-3:] == tail), None)

    def effects(self, name=None):
        file = self.folder / "effects.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return sum(name in (None, json.loads(line)["name"]) for line in lines)

    def touch(self, name):
        (self.folder / name).touch()

    def wait_for(self, name, count=1):
        """Wait until children have made the file, or as many files of a pattern."""
        give_up = time.monotonic() + HUNG
        while len(list(self.folder.glob(name))) < count:
            assert time.monotonic() < give_up, f"no children made {count} {name}"
            time.sleep(0.005)

    def move_clock(self, seconds):
        """Set the clock of the run's store so far ahead of the machine's, in every process at once."""
        (self.folder / "moved").write_text(str(seconds))
        (self.folder / "moved").replace(self.folder / "ahead")

    def beats(self):
        """The version of the last sign of life, 0 before the first one."""
        return next((version for key, _, version in self.rows() if key[-2:] == ["req", "beat"]), 0)


@pytest.fixture
def new_run(lab, place):
    """Make a run of a scenario in a folder of its own."""

    def make(scenario):
        return Run(lab, scenario, tempfile.mkdtemp(dir=place))

    return make


@pytest.fixture
def stopped():
    """Stop processes for a while; none stays stopped after the test."""
    jobs = []

    def stop(job):
        job.signal(signal.SIGSTOP)
        jobs.append(job)
        return lambda: job.signal(signal.SIGCONT)

    yield stop
    for job in jobs:
        try:
            job.signal(signal.SIGCONT)
        except ProcessLookupError:
            continue


@pytest_asyncio.fixture
async def storage(place):
    """A store in a file."""
    async with SqliteStorage(place / "journal.sqlite") as storage:
        yield storage


@pytest.fixture
def effects(place):
    """The witness."""
    return EffectLog(place / "effects.jsonl")
