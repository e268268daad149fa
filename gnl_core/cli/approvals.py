"""`gnl approvals`: questions that wait for a person, and the answers."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from gnl_core import keys
from gnl_core.approvals import MISSING, Answer, Interrupt, Relation, read_answer
from gnl_core.cli.database import json_option, org_option, require_run, with_journal
from gnl_core.cli.result import read_result, result_option
from gnl_core.cli.terminal import DONE, WAITS, age, complain, plain, short, tell, tell_json
from gnl_core.decisions import decide, list_interrupts, parse_question, verb
from gnl_core.errors import JournalError, UnknownQuestionError
from gnl_core.journal import get
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_core.records import read_call

Command = TypeVar("Command", bound=Callable[..., Any])

_NONE_OPEN = "nothing waits for a person"
_REASON = 10_000
"""Characters of a question that the list shows: all of what the engine asks; a guard's own words may be longer."""


@click.group()
def approvals() -> None:
    """Questions that wait for a person, and the answers to them."""


@approvals.command("list")
@click.argument("run", required=False)
@org_option
@json_option
@click.pass_context
def list_(ctx: click.Context, /, run: str | None, db: Place, as_json: bool) -> None:
    """List open questions: of the whole journal, or of RUN and its sub-agents.

    Calls that a killed program left in doubt are among them.

    Exit status: 0, also where questions are open; 1 if runs could not be read (they are told on standard error); 2 no
    such run.
    """
    problems: list[str] = []

    async def read(journal: Journal) -> tuple[list[Interrupt], int]:
        if run is not None:
            await require_run(journal, run)
            return list(await list_interrupts(journal, run)), await journal.now()
        unreadable: list[JournalError] = []
        found = await list_interrupts(journal, unreadable=unreadable)
        problems.extend(str(error) for error in unreadable)
        return list(found), await journal.now()

    questions, now = with_journal(db, read)
    if as_json:
        tell_json([question.to_json() for question in questions])
    else:
        for question in questions:
            tell_question(question, now)
        if not questions:
            complain(_NONE_OPEN)
    for problem in problems:
        complain(f"unreadable: {problem}")
    ctx.exit(WAITS if problems else DONE)


def tell_question(question: Interrupt, now: int) -> None:
    """Write one question on three lines."""
    tell(plain(question.question))
    tell(f"  {plain(question.tool_name)}({short(dict(question.args))})")
    # Whole: what is cut off may be what tells this call from the one it is compared with.
    tell(f"  {plain(question.kind)}, asked {age(question.asked_at, now)} ago: {short(question.reason, _REASON)}")


def _answering(command: Command) -> Command:
    for decorate in (
        json_option,
        org_option,
        click.option("--reason", metavar="TEXT", help="Why; the model reads it when the answer is no."),
        click.option("--actor", metavar="NAME", help="Who answers. [default: the login name]"),
        click.argument("call", required=False),
        click.argument("question"),
    ):
        command = decorate(command)
    return command


@approvals.command()
@_answering
@click.option("--different-work", is_flag=True, help="It is other work than that shown.")
@click.option("--deliberate-repeat", is_flag=True, help="It repeats that on purpose.")
def approve(*, different_work: bool, deliberate_repeat: bool, **options: Any) -> None:
    """Let a call run: QUESTION is '<run>/<call>/<kind>/<attempt>' as the list shows it.

    RUN CALL does where that names exactly one question. A call in doubt runs again, once. Nothing runs now: drive
    the run again for that. Where the question shows earlier work, say which it is, with one of --different-work and
    --deliberate-repeat: that labels the pair for calibration, as long as the call has not begun.

    Exit status: 0 recorded, 2 no such question, or decided otherwise before.
    """
    if different_work and deliberate_repeat:
        raise click.UsageError(
            "--different-work and --deliberate-repeat contradict each other: it is other work than that shown, or it "
            "repeats that on purpose; give one of them"
        )
    relation: Relation | None = None
    if different_work or deliberate_repeat:
        relation = "different_work" if different_work else "deliberate_repeat"
    _answer(approved=True, output=MISSING, relation=relation, **options)


@approvals.command()
@_answering
def deny(**options: Any) -> None:
    """Forbid a call: QUESTION is '<run>/<call>/<kind>/<attempt>' as the list shows it.

    RUN CALL does where that names exactly one question. It takes the place of an approval, as long as the call has not
    begun, and says so. Exit status: 0 recorded, 2 no such question, or decided otherwise before.
    """
    _answer(approved=False, output=MISSING, **options)


@approvals.command()
@_answering
@result_option
def settle(result: str, **options: Any) -> None:
    """Record what a call in doubt is known to have come to: it counts as done, with this result, and never runs again.

    What is recorded is echoed, and cannot be corrected afterwards: the model goes on from it.

    QUESTION is '<run>/<call>/in_doubt/<attempt>' as the list shows it, or RUN CALL. A question of another kind is about
    a call that has not begun: approve or deny it. Exit status: 0 recorded, 2 no such question, or decided otherwise
    before.
    """
    _answer(approved=False, output=read_result(result), **options)


def _answer(
    *,
    approved: bool,
    output: Any,
    question: str,
    call: str | None,
    actor: str | None,
    reason: str | None,
    db: Place,
    as_json: bool,
    relation: Relation | None = None,
) -> None:
    who = actor if actor is not None else login_name()

    async def decide_it(journal: Journal) -> tuple[str, Answer, Answer | None, bool]:
        name = question if call is None else await _only_question(journal, question, call)
        run, part_call, kind, attempt = parse_question(name)
        if output is not MISSING and kind != "in_doubt":
            raise click.UsageError(
                f"{name} asks about a call that has not begun, and only a call in doubt (…/in_doubt/…) is settled: use "
                "gnl approvals approve, or deny"
            )
        row = await get(journal, keys.answer(*keys.split_run_id(run), part_call, kind, attempt))
        beside = await _shows_earlier_work(journal, run, part_call)
        answer = await decide(journal, name, approved, actor=who, reason=reason, output=output, relation=relation)
        return name, answer, read_answer(row), beside

    name, answer, before, beside = with_journal(db, decide_it, write=True)
    if as_json:
        tell_json({"question": name, **answer.to_json()})
    else:
        came_to = f": {short(output)}" if output is not MISSING else ""
        tell(f"{verb(answer)} {plain(name)}{labelled(answer)}{came_to}")
    if before is not None and before.to_json() == answer.to_json():
        complain(f"it was {verb(answer)} by {answer.actor or 'nobody named'} already, and stays so")
    elif before is not None and before.approved and answer.approved and before.at == answer.at:
        complain(f"it was approved by {answer.actor or 'nobody named'} already; what is new is the label")
    elif before is not None:
        complain(f"this takes the place of an earlier answer: {verb(before)} by {before.actor or 'nobody named'}")
    if answer.approved and answer.relation is None and beside:
        complain(
            "the question shows earlier work: approve it again with --different-work or --deliberate-repeat, and the "
            "pair is labelled for calibration (as long as the call has not begun)"
        )
    complain(
        f"answered as {answer.actor or who}; nothing has run yet: drive the run again (start its program again, or gnl "
        "runs resume) to go on"
    )


def labelled(answer: Answer) -> str:
    """Return the label of an answer as it is told after its verb, '' where it has none."""
    return f", labelled {answer.relation.replace('_', ' ')}" if answer.relation is not None else ""


async def _shows_earlier_work(journal: Journal, run: str, call: str) -> bool:
    """Whether the question that a call has open shows earlier work; read by `decide` in the same way."""
    place = keys.parse_call_id(call)
    entry = await get(journal, keys.tool(*keys.split_run_id(run), *place)) if place else None
    record = read_call(entry) if entry is not None else None
    if record is not None and record.mirror_of:
        entry = await get(journal, keys.decode(record.mirror_of))
        record = read_call(entry) if entry is not None else None
    asked = record.question if record is not None and record.status == "suspended" else None
    return isinstance((asked or {}).get("prior"), dict)


async def _only_question(journal: Journal, run: str, call: str) -> str:
    questions: Sequence[Interrupt] = await list_interrupts(journal, run)
    found = [item.question for item in questions if (item.run_id, item.tool_call_id) == (run, call)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(item.question for item in questions[:20]) or "none"
    raise UnknownQuestionError(
        f"{len(found) or 'no'} open questions of run {run!r} and call {call!r}; open in this run: {listed}",
        open=[item.question for item in questions[:20]],
    )


def login_name() -> str:
    """Return the login name.

    Raises:
        click.UsageError: This process has none.
    """
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise click.UsageError("this process has no login name: say who answers with --actor") from None
