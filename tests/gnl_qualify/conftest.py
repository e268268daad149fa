"""An invented set that tells its own truth: two texts name one job exactly when they hold the same number."""

import json
import os
import re
import subprocess
import sys

import pytest

from gnl_fixtures import FixtureSet, Pair
from gnl_semantic.judge.transport import JudgeInfo, Reply

TEXTS = {
    "dup-exact": ("Lamp {n} green", "LAMP {n} GREEN"),
    "dup-paraphrase": ("Lamp {n} green", "green lamp, number {n}"),
    "near-miss": ("Lamp {n} green", "Lamp {m} green"),
    "unrelated": ("Lamp {n} green", "rent of flat {m}"),
}
DOMAINS = ("orders", "refunds", "visits")
LANGUAGES = ("en", "tr")


def pairs_of(**counts):
    """Return `counts` pairs by label, underscores for hyphens."""
    return tuple(
        Pair(
            id=f"{label}-{i:04}",
            domain=DOMAINS[i % 3],
            lang=LANGUAGES[i % 2],
            tool_name="placeOrder",
            a=TEXTS[label][0].format(n=1000 + i),
            b=TEXTS[label][1].format(n=1000 + i, m=7000 + i),
            label=label,
            phenomena=("model-variant",) if label == "near-miss" and i % 2 else (),
            note=f"secret note {i}",
        )
        for label in (name.replace("_", "-") for name in counts)
        for i in range(counts[label.replace("-", "_")])
    )


def set_of(each=None, **counts):
    """Return a set with `each` pairs of every label, or with `counts` by label."""
    if each is not None:
        counts = {label.replace("-", "_"): each for label in TEXTS}
    return FixtureSet("invented", pairs_of(**counts))


def truth(user):
    """Answer as a perfect judge."""
    one, two = (re.findall(r"\d+", line.partition(": ")[2]) for line in user.splitlines()[1:])
    return "SAME" if one == two else "DIFFERENT"


class FunctionJudge:
    """A judge made of a function of the user text, sync or async; counts what is in flight."""

    def __init__(self, answer=truth, *, spec="test:function", model_id="test-model"):
        self.answer = answer
        self.info = JudgeInfo(model_id=model_id, spec=spec, engine="test", parameters={"n": 1})
        self.asked = []
        self.closed = 0

    async def complete(self, system, user):
        self.asked.append((system, user))
        answer = self.answer(user)
        if hasattr(answer, "__await__"):
            answer = await answer
        return answer if isinstance(answer, Reply) else Reply(answer)

    async def aclose(self):
        self.closed += 1


PERFECT = """
import re

def complete(system, user):
    one, two = (re.findall(r"\\d+", line.partition(": ")[2]) for line in user.splitlines()[1:])
    return "SAME" if one == two else "DIFFERENT"
"""


def write_set(path, fixtures):
    """Write a set as a fixtures file."""
    names = ("id", "domain", "lang", "tool_name", "a", "b", "label", "note")
    pairs = [
        {name: getattr(pair, name) for name in names} | {"phenomena": list(pair.phenomena)} for pair in fixtures.pairs
    ]
    path.write_text(json.dumps({"v": 1, "pairs": pairs}), encoding="utf-8")
    return path


def program(*args, **options):
    """Return the command line and the options of a real run of the program."""
    command = [sys.executable, "-m", "gnl_qualify", *map(str, args)]
    environment = {**os.environ, "PYTHONWARNINGS": "error"} | options.pop("env", {})
    return command, {"text": True, "encoding": "utf-8", "env": environment} | options


def run(*args, **options):
    """Run the program to its end."""
    command, options = program(*args, **options)
    return subprocess.run(command, check=False, capture_output=True, timeout=120, **options)


@pytest.fixture(scope="session")
def room():
    """The helpers above, by name."""
    return sys.modules[__name__]
