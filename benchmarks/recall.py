"""What recall costs, against the way the reference documents it: python benchmarks/recall.py [--json FILE].

One scope of one SQLite file holds N records of 384 dimensions, which came one by one and were asked about meanwhile,
so that blocks of copies stand beside them. Ours: `VectorCache.recall`, cold (a process that holds nothing, with those
blocks), warm (the generation unchanged) and after one new record. The column 'first' is the load of as many records
that nobody has ever asked about, without a block, in a file of its own; it writes the first blocks. The reference's
documented algorithm, written anew here: list the scope's keys, read one record at a time, decode its vector from
base64, one cosine a record; in numpy, and with the arithmetic in plain Python. Its records hold base64 in the value,
in a scope of their own in the same file. Rounds are interleaved, a ratio is taken within a round, and each row is the
median. Both must find the same records.

What the copies cost is measured over 2,000 records: bytes of the file a record, with and without them, and the time
that a record's batch and a block take.

Then, unless `--no-gate`, what the gate adds to one embedding: `SemanticGate.find` with the built-in model over 2,000
records, and the embedding of another text of the same length alone, in turns. A missed target does not change the exit
status.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnl_core import keys
from gnl_core.identity import Identity, SemanticIdentity
from gnl_core.journal import Create, Entry, Journal, Key, new_batch
from gnl_core.journal.sqlite import SqliteStorage
from gnl_core.prior import Subject
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.past import TEMPLATE_VERSION, past_ops
from gnl_semantic.vectors import Recall, VectorCache
from gnl_semantic.vectors.blocks import BLOCK_RECORDS

WIDTH, TOP_K, THRESHOLD, GATE_RECORDS = 384, 3, 0.6, 2_000
STAMP = "bench@1"
TARGETS = {"cold ratio": 50.0, "warm ratio": 500.0, "warm ms": 1.0, "gate": 1.15}
DECLARED = SemanticIdentity(keys=("sku", "warehouse"), amount_fields=("price",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,500,2000,20000,100000", help="records, by commas")
    parser.add_argument("--rounds", type=int, default=5, help="rounds up to 2,000 records; fewer above (default: 5)")
    parser.add_argument("--max-mib", type=int, default=64, help="the cache's bound (default: 64)")
    parser.add_argument("--no-gate", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    rows = [asyncio.run(measure(size, options.rounds, options.max_mib << 20)) for size in sizes]
    report(rows, options.max_mib)
    costs = asyncio.run(measure_costs())
    print(
        f"\ncopies of {GATE_RECORDS:,} records: {costs['bytes_before']:,.0f} bytes of the file a record without them, "
        f"{costs['bytes']:,.0f} with them; the batch of a record {costs['record_before_ms']:.2f} ms without its copy, "
        f"{costs['record_ms']:.2f} with it; a block of {BLOCK_RECORDS} {costs['block_ms']:.1f} ms"
    )
    gate = None if options.no_gate else asyncio.run(measure_gate(12 * options.rounds))
    if gate is not None:
        print(
            f"\ngate over {GATE_RECORDS:,} records: embed + recall + decide {gate['gate_ms']:.2f} ms, one embedding "
            f"alone {gate['embed_ms']:.2f} ms, ratio {gate['ratio']:.3f} (target: at most {TARGETS['gate']})"
        )
    if options.json:
        options.json.write_text(json.dumps({"recall": rows, "copies": costs, "gate": gate}, indent=1))


# A scope to look through ---------------------------------------------------------------------------------------------


def subject_of(journal: Journal, number: int, scope: Key = ("xthr", "ours")) -> Subject:
    args: dict[str, object] = {"sku": f"kettle model {number}", "warehouse": "berlin", "price": number % 97 + 0.5}
    identity = DECLARED.build("order", args)
    assert isinstance(identity, Identity)
    return Subject(
        journal=journal,
        scope=scope,
        root="run-1",
        fence=1,
        run=f"run-{number % 50}",
        call=f"s{number % 40}p0",
        tool="order",
        args_hash=f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}",  # spread over the keys, as hashes are
        identity=identity,
        now=1,
    )


def unit_vectors(count: int) -> Vectors:
    """Return vectors of which few are near any other."""
    drawn = np.random.default_rng(3).standard_normal((count, WIDTH)).astype(np.float32)
    drawn[1::100] = drawn[0] + 0.5 * drawn[1::100]
    drawn /= np.linalg.norm(drawn, axis=1)[:, None]
    return drawn


def written(journal: Journal, number: int, stamp: str, vector: Vectors, scope: Key = ("xthr", "ours")) -> Any:
    """Return what the gate writes of a success: record, fold, count, copy."""
    return past_ops(subject_of(journal, number, scope), stamp=stamp, vector=vector, known=None)


async def fill(journal: Journal, vectors: Vectors, max_bytes: int) -> None:
    """Write each record twice: as ours, and in the reference's form in a scope beside; ask now and then."""
    cache, asked = VectorCache(max_bytes=max_bytes), subject_of(journal, -1)
    many = len(vectors) > GATE_RECORDS  # then some come at once, and whoever asks does so less often
    for begin in range(0, len(vectors), step := 32 if many else 1):
        ops: list[Any] = []
        for number, vector in enumerate(vectors[begin : begin + step], begin):
            record, fold, count, copy = written(journal, number, STAMP, vector)
            text = base64.b64encode(vector.tobytes()).decode()
            theirs = {**record.value, "vector": text, "hash": record.key[-1], "tool": "order"}
            ops += [record, fold, copy, Create(("xthr", "theirs", "sem", "order", record.key[-1]), theirs)]
        await journal.apply([*ops, replace(count, by={"n": len(ops) // 4})], batch=new_batch())
        if begin % (512 if many else 16) == 0:
            await ask(cache, asked, await generation_of(journal, asked), vectors[0])


async def fill_unasked(journal: Journal, vectors: Vectors, scope: Key) -> None:
    """Write records that nobody asks about: there is no block of them."""
    for begin in range(0, len(vectors), 32):
        ops: list[Any] = []
        for number, vector in enumerate(vectors[begin : begin + 32], begin):
            record, fold, count, copy = written(journal, number, STAMP, vector, scope)
            ops += [record, fold, copy]
        await journal.apply([*ops, replace(count, by={"n": len(ops) // 3})], batch=new_batch())


async def generation_of(journal: Journal, asked: Subject) -> Entry | None:
    (generation,) = (await journal.get_many([keys.generation(asked.scope, asked.tool)])).entries
    return generation


# The reference's algorithm -------------------------------------------------------------------------------------------

Cosine = Callable[[bytes, Vectors], float]


def cosine_numpy(blob: bytes, query: Vectors) -> float:
    vector = np.frombuffer(blob, "<f4")
    return float(vector @ query) / float(np.linalg.norm(vector) * np.linalg.norm(query))


def cosine_plain(blob: bytes, query: Any) -> float:
    vector = memoryview(blob).cast("f").tolist()
    dot = a = b = 0.0
    for one, other in zip(vector, query, strict=True):
        dot += one * other
        a += one * one
        b += other * other
    return dot / math.sqrt(a * b)


async def reference(journal: Journal, query: Any, cosine: Cosine) -> list[tuple[str, float]]:
    """List the keys; then for each record a read, its checks, and a cosine."""
    prefix: Key = ("xthr", "theirs", "sem", "order")
    names: list[Key] = []
    after: Key | None = None
    while True:
        page = await journal.scan(prefix, after=after, limit=2_000)
        names += [entry.key for entry in page.entries]
        if (after := page.after) is None:
            break
    found: list[tuple[str, float]] = []
    for name in names:
        (entry,) = (await journal.get_many([name])).entries
        value: Any = entry.value if entry is not None else None
        if value is None or value["f"] != 1 or value["tool"] != "order" or name != (*prefix, value["hash"]):
            continue
        if value["model"] != STAMP or value["template"] != TEMPLATE_VERSION:
            continue
        score = cosine(base64.b64decode(value["vector"]), query)
        if score >= THRESHOLD:
            found.append((value["hash"], score))
    return sorted(found, key=lambda one: -one[1])[:TOP_K]


# Measured ------------------------------------------------------------------------------------------------------------


async def timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """Return milliseconds and the result."""
    begun = time.perf_counter()
    result = await work()
    return 1_000 * (time.perf_counter() - begun), result


async def measure(size: int, rounds: int, max_bytes: int) -> dict[str, float]:
    rounds = rounds if size <= 2_000 else max(1, rounds // 2) if size <= 20_000 else 1
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        async with (
            SqliteStorage(Path(folder) / "recall.db", "normal") as storage,
            SqliteStorage(Path(folder) / "first.db", "normal") as bare,
        ):
            journal = storage.runs
            vectors = unit_vectors(size)
            await fill(journal, vectors, max_bytes)
            query = vectors[0]
            asked = subject_of(journal, -1)
            times: dict[str, list[float]] = {}
            for number in range(rounds + 1):  # the first one warms both up
                first = subject_of(bare.runs, -1, ("xthr", f"first-{number}"))
                await fill_unasked(bare.runs, vectors, first.scope)
                row = await one_round(asked, first, query, fresh=size + number, max_bytes=max_bytes)
                if number:
                    for name, figure in row.items():
                        times.setdefault(name, []).append(figure)
    return {"records": size, "rounds": rounds, **{name: statistics.median(figures) for name, figures in times.items()}}


async def one_round(
    asked: Subject, unasked: Subject, query: Vectors, *, fresh: int, max_bytes: int
) -> dict[str, float]:
    journal = asked.journal
    cache = VectorCache(max_bytes=max_bytes)

    async def recall() -> Recall:
        return await ask(cache, asked, await generation_of(journal, asked), query)

    async def recall_first() -> Recall:
        generation = await generation_of(unasked.journal, unasked)
        return await ask(VectorCache(max_bytes=max_bytes), unasked, generation, query)

    plain = query.tolist()
    slow, theirs = await timed(lambda: reference(journal, query, cosine_numpy))
    slowest, _ = await timed(lambda: reference(journal, plain, cosine_plain))
    first, _ = await timed(recall_first)
    cold, ours = await timed(recall)
    for one, other in zip(ours.scored, theirs, strict=True):
        if one[0] != other[0] or abs((one[1] or 0) - other[1]) > 1e-4:
            raise SystemExit(f"they differ: {ours.scored} and {theirs}")
    generation = await generation_of(journal, asked)
    warm = statistics.median([(await timed(lambda: ask(cache, asked, generation, query)))[0] for _ in range(9)])
    ops = past_ops(subject_of(journal, fresh), stamp=STAMP, vector=-query, known=None)
    await journal.apply(ops, batch=new_batch())
    after_write, _ = await timed(recall)
    return {
        "reference_ms": slow,
        "reference_plain_ms": slowest,
        "first_ms": first,
        "cold_ms": cold,
        "warm_ms": warm,
        "after_write_ms": after_write,
        "cold_ratio": slow / cold,
        "warm_ratio": slow / warm,
        "cold_ratio_plain": slowest / cold,
        "held": float(len(cache)),
    }


async def ask(cache: VectorCache, asked: Subject, generation: Entry | None, query: Vectors) -> Recall:
    return await cache.recall(
        asked,
        generation=generation,
        stamp=STAMP,
        query=query,
        k=TOP_K,
        threshold=THRESHOLD,
        exact=(),
        dead=(asked.args_hash,),
    )


async def measure_costs() -> dict[str, float]:
    """Measure what copies cost, over records that come one by one and are asked about each time."""
    found: dict[str, float] = {}
    vectors = unit_vectors(GATE_RECORDS)
    for suffix in ("_before", ""):
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            path = Path(folder) / "costs.db"
            async with SqliteStorage(path, "normal") as storage:
                journal, cache = storage.runs, VectorCache()
                asked = subject_of(journal, -1)
                records: list[float] = []
                blocks: list[float] = []
                others: list[float] = []
                for number, vector in enumerate(vectors):
                    ops = written(journal, number, STAMP, vector)[: 3 if suffix else 4]
                    records.append((await timed(partial(journal.apply, ops, batch=new_batch())))[0])
                    if suffix:
                        continue
                    generation = await generation_of(journal, asked)
                    took, _ = await timed(partial(ask, cache, asked, generation, vectors[0]))
                    (blocks if (number + 1) % BLOCK_RECORDS == 0 else others).append(took)
            with closing(sqlite3.connect(path)) as connection:  # the storage is closed: nothing is left in the log
                (size,) = connection.execute(
                    "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
                ).fetchone()
            found |= {f"bytes{suffix}": size / GATE_RECORDS, f"record{suffix}_ms": statistics.median(records)}
            if blocks:
                found["block_ms"] = statistics.median(blocks) - statistics.median(others)
    return found


def memory_folder() -> str | None:
    """Return a folder on a RAM disk if there is one, so that no disk's speed is in the figures."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a temporary folder is made in it


def report(rows: list[dict[str, float]], max_mib: int) -> None:
    print(f"milliseconds of wall time, medians; {WIDTH} dimensions, the cache's bound {max_mib} MiB")
    head = (
        "records",
        "reference",
        "in Python",
        "first",
        "cold",
        "warm",
        "one new",
        "cold x",
        "warm x",
        "cold x, Python",
        "",
    )
    print("".join(f"{name:>14}" for name in head))
    for row in rows:
        cells = [f"{row['records']:,.0f}"]
        cells += [f"{row[name]:.1f}" for name in ("reference_ms", "reference_plain_ms", "first_ms")]
        cells += [f"{row[name]:.2f}" for name in ("cold_ms", "warm_ms", "after_write_ms")]
        cells += [f"{row[name]:.1f}" for name in ("cold_ratio", "warm_ratio", "cold_ratio_plain")]
        print("".join(f"{cell:>14}" for cell in cells) + ("" if row["held"] else "   streamed, not held"))
    for row in rows:
        if row["records"] == GATE_RECORDS:
            print("\ntargets at 2,000 records:")
            told(
                "cold with blocks, times faster than the reference",
                row["cold_ratio"],
                TARGETS["cold ratio"],
                least=True,
            )
            told("warm, times faster than the reference", row["warm_ratio"], TARGETS["warm ratio"], least=True)
            told("warm, ms", row["warm_ms"], TARGETS["warm ms"], least=False)


def told(what: str, figure: float, target: float, *, least: bool) -> None:
    met = figure >= target if least else figure < target
    print(
        f"  {what}: {figure:.2f} (target: {'at least' if least else 'below'} {target:g}): {'met' if met else 'missed'}"
    )


# The gate ------------------------------------------------------------------------------------------------------------


async def measure_gate(rounds: int) -> dict[str, float]:
    """Time the gate's whole look and one embedding in turns, each with a text of its own of the same length."""
    from gnl_semantic.embedder import load_embedder  # noqa: PLC0415 - loads onnxruntime
    from gnl_semantic.similar import SemanticGate  # noqa: PLC0415 - ditto

    embedder = load_embedder("local")
    gate = SemanticGate(embed=embedder, rules=True, cache=VectorCache())
    looks: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        async with SqliteStorage(Path(folder) / "gate.db", "normal") as storage:
            journal = storage.runs
            vectors = await embedder.embed(
                [subject_of(journal, number).identity.sentence for number in range(GATE_RECORDS)]
            )
            ops: list[Any] = []
            for number, vector in enumerate(vectors):
                record, fold, count, copy = written(journal, number, gate.embed_model_id, vector)
                ops += [record, fold, copy]
            await journal.apply([*ops, replace(count, by={"n": GATE_RECORDS})], batch=new_batch())
            for number in range(GATE_RECORDS, GATE_RECORDS + rounds + 1):
                subject = subject_of(journal, number)
                other = subject_of(journal, number + 5_000).identity.sentence
                works: dict[str, Callable[[], Awaitable[Any]]]
                works = {"look": partial(gate.find, subject, judge=False), "one": partial(embedder.embed, [other])}
                # In turns: whoever comes second finds the processor's caches warmer.
                names = sorted(works, reverse=number % 2 == 0)
                took = {name: (await timed(works[name]))[0] for name in names}
                if number > GATE_RECORDS:  # the first look reads the scope
                    looks.append(took["look"])
                    alone.append(took["one"])
    return {
        "records": GATE_RECORDS,
        "gate_ms": statistics.median(looks),
        "embed_ms": statistics.median(alone),
        "ratio": statistics.median(look / one for look, one in zip(looks, alone, strict=True)),
    }


if __name__ == "__main__":
    main()
