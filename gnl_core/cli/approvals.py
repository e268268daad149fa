"""`gnl approvals`: questions that wait for a person, and the answers."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gnl_core import keys
from gnl_core.approvals import MISSING, Answer, Interrupt, Relation, read_answer
from gnl_core.cli.database import db_option, json_option, require_run, with_journal
from gnl_core.cli.result import read_result, result_option
from gnl_core.cli.terminal import DONE, WAITS, age, complain, plain, short, tell, tell_json
from gnl_core.decisions import decide, list_interrupts, parse_question, verb
from gnl_core.errors import JournalError, UnknownQuestionError
from gnl_core.journal import get
from gnl_core.journal.port import Journal

Command = TypeVar("Command", bound=Callable[..., Any])

_NONE_OPEN = "nothing waits for a person"


@click.group()
def approvals() -> None:
    """Questions that wait for a person, and the answers to them."""


@approvals.command("list")
@click.argument("run", required=False)
@db_option
@json_option
@click.pass_context
def list_(ctx: click.Context, /, run: str | None, db: Path, as_json: bool) -> None:
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
    tell(f"  {plain(question.kind)}, asked {age(question.asked_at, now)} ago: {short(question.reason)}")


def _answering(command: Command) -> Command:
    for decorate in (
        json_option,
        db_option,
        click.option("--reason", metavar="TEXT", help="Why; the model reads it when the answer is no."),
        click.option("--actor", metavar="NAME", help="Who answers. [default: the login name]"),
        click.argument("call", required=False),
        click.argument("question"),
    ):
        command = decorate(command)
    return command


@approvals.command()
@_answering
@click.option("--different-work", "relation", flag_value="different_work", help="It is other work than that shown.")
@click.option("--deliberate-repeat", "relation", flag_value="deliberate_repeat", help="It repeats that on purpose.")
def approve(**options: Any) -> None:
    """Let a call run: QUESTION is '<run>/<call>/<kind>/<attempt>' as the list shows it.

    RUN CALL does where that names exactly one question. A call in doubt runs again, once. Nothing runs now: resume the
    run for that. Where the question shows earlier work, say which it is: that labels the pair for calibration.

    Exit status: 0 recorded, 2 no such question, or decided otherwise before.
    """
    _answer(approved=True, output=MISSING, **options)


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
    db: Path,
    as_json: bool,
    relation: Relation | None = None,
) -> None:
    who = actor if actor is not None else login_name()

    async def decide_it(journal: Journal) -> tuple[str, Answer, Answer | None]:
        name = question if call is None else await _only_question(journal, question, call)
        run, part_call, kind, attempt = parse_question(name)
        if output is not MISSING and kind != "in_doubt":
            raise click.UsageError(
                f"{name} asks about a call that has not begun, and only a call in doubt (…/in_doubt/…) is settled: use "
                "gnl approvals approve, or deny"
            )
        row = await get(journal, keys.answer(*keys.split_run_id(run), part_call, kind, attempt))
        answer = await decide(journal, name, approved, actor=who, reason=reason, output=output, relation=relation)
        return name, answer, read_answer(row)

    name, answer, before = with_journal(db, decide_it, write=True)
    if as_json:
        tell_json({"question": name, **answer.to_json()})
    else:
        came_to = f": {short(output)}" if output is not MISSING else ""
        tell(f"{verb(answer)} {plain(name)}{came_to}")
    if before is not None and before.to_json() == answer.to_json():
        complain(f"it was {verb(answer)} by {answer.actor or 'nobody named'} already, and stays so")
    elif before is not None:
        complain(f"this takes the place of an earlier answer: {verb(before)} by {before.actor or 'nobody named'}")
    complain(f"answered as {answer.actor or who}; resume the run to go on")


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
