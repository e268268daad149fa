"""Let four LLMs that others recorded sit the exam: labelled product pairs with three runs of verdicts each.

    python benchmarks/promap_exam.py promap-verdicts.json [--judge builtin:local] [--json out.json]

The file is a JSON array of `{lang, a, b, match, match_type, verdicts: {judge: [0 or 1, ...]}}`; it is somebody else's
data and not part of this project. Matches become `dup-paraphrase`, close non-matches `near-miss`, all others
`unrelated`. Each run of each judge is written as a `recorded:` judge and sits the exam through the ordinary code. The
recorded verdicts were given to other prompts than ours, so the outcome says how the exam marks such answers, not what
these models would earn here.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnl_fixtures import FixtureSet, load_files
from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.items import set_paper
from gnl_qualify.stats import rate
from gnl_reports.model import ExamReport
from gnl_semantic.judge import load_judge
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.transports.recorded import RecordedJudge
from gnl_semantic.rate import Rate

LABELS = {"match": "dup-paraphrase", "close_nonmatch": "near-miss"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--judge", help="let this judge sit the same pairs, in place of the recorded ones")
    options.add_argument("--json", type=Path, help="write the table as JSON")
    args = options.parse_args()
    logging.disable(logging.WARNING)
    rows = json.loads(args.file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as work:
        table = [sit_one(rows, args.judge, Path(work))] if args.judge else list(sit_all(rows, Path(work)))
    print(f"{'judge':22} {'run':>3}  {'paraphrase recall':34} {'near-miss false alarms':34} status")
    for row in table:
        print(f"{row['judge']:22} {row['run']:>3}  {row['recall']:34} {row['false_alarms']:34} {row['status']}")
    if args.json:
        args.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    if args.judge:
        return
    print("\nPairs on which the runs of one judge disagree")
    for judge in rows[0]["verdicts"]:
        print(f"{judge:22} {disagreement(rows, judge)}")


def sit_all(rows: list[dict[str, Any]], work: Path) -> Iterator[dict[str, object]]:
    """Yield one line a judge and run."""
    fixtures = as_fixtures(rows, work / "promap.json")
    for judge, verdicts in rows[0]["verdicts"].items():
        for run in range(len(verdicts)):
            yield line(judge, run + 1, asyncio.run(sit(rows, fixtures, judge, run, work)))


def sit_one(rows: list[dict[str, Any]], spec: str, work: Path) -> dict[str, object]:
    """Return the line of a judge that is asked now."""
    fixtures = as_fixtures(rows, work / "promap.json")
    judge = load_judge(spec, model=None, timeout_s=30)
    sitting = asyncio.run(sit_exam(judge, fixtures, Settings(), transcript=work / "asked.jsonl"))
    return line(spec, 1, sitting.report)


def line(judge: str, run: int, report: ExamReport) -> dict[str, object]:
    """Return one line of the table."""
    recall, false_alarms = (bar.rate for bar in report.bars)
    return {
        "judge": judge,
        "run": run,
        "recall": str(recall),
        "false_alarms": str(false_alarms),
        "status": report.status,
        "reason": report.reasons[0],
    }


def as_fixtures(rows: list[dict[str, Any]], path: Path) -> FixtureSet:
    """Write the rows as a fixtures file and read it back through the ordinary loader."""
    pairs = [
        {
            "id": str(number),
            "domain": "products",
            "lang": row["lang"],
            "tool_name": "createProduct",
            "a": row["a"],
            "b": row["b"],
            "label": LABELS.get(row["match_type"], "unrelated"),
        }
        for number, row in enumerate(rows)
    ]
    path.write_text(json.dumps({"v": 1, "pairs": pairs}, ensure_ascii=False), encoding="utf-8")
    return load_files([path])


async def sit(rows: list[dict[str, Any]], fixtures: FixtureSet, judge: str, run: int, work: Path) -> ExamReport:
    """Record one run of one judge and let it sit the exam."""
    prompt = PROMPTS[PROMPT_VERSION]
    name = f"{judge.replace('/', '-')}-{run}"
    lines: list[dict[str, object]] = [
        {"kind": "header", "judge_model_id": f"{judge}#{run + 1}", "prompt_sha256": prompt.sha256}
    ]
    paper = set_paper(fixtures, seed=1)
    for item in paper.items:
        row = rows[int(paper.key[item.id].id)]
        user = prompt.render(item.tool_name, item.first, item.second)
        word = "SAME" if row["verdicts"][judge][run] else "DIFFERENT"
        lines.append(
            {"kind": "answer", "prompt_sha256": hashlib.sha256(user.encode()).hexdigest(), "repeat": 0, "text": word}
        )
    recording = work / f"{name}.jsonl"
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    # The recorded judges saw each pair once and in one order, so nothing can be asked again or turned round.
    settings = Settings(repeats=0, order_sample=0)
    sitting = await sit_exam(
        RecordedJudge.load(str(recording)), fixtures, settings, transcript=work / f"{name}.transcript.jsonl"
    )
    return sitting.report


def disagreement(rows: list[dict[str, Any]], judge: str) -> Rate:
    """Return the share of pairs whose verdicts are not the same in every run."""
    return rate(sum(len(set(row["verdicts"][judge])) > 1 for row in rows), len(rows))


if __name__ == "__main__":
    main()
