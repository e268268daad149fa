"""A chat with a tool that acts on the world, over any server that speaks OpenAI's chat completions.

    python examples/chat.py --base-url http://127.0.0.1:8080/v1 --model my-model --thread support-1

Every turn is a run of its own: kill the program in the middle of one, start it again with the same thread, and the turn
goes on where it stood. A ticket is opened only after you said yes. The key, if the server wants one, is read from the
environment variable named by --key-env.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gnl_core import (
    DoubtError,
    Message,
    ModelError,
    SqliteStorage,
    TextPart,
    decide,
    list_runs,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.journal.port import Journal
from gnl_core.model.providers.openai import OpenAIModel
from gnl_core.results import DurableResult

TICKETS = Path("tickets.txt")


@tool(side_effect=True, confirm=lambda args: f"Open a ticket: {args['title']!r}?")
def open_ticket(title: str) -> str:
    """Open a support ticket.

    Args:
        title: What it is about, in one line.
    """
    with TICKETS.open("a") as file:
        file.write(title + "\n")
    return "opened"


async def answer(journal: Journal, model: OpenAIModel, result: DurableResult) -> DurableResult:
    """Put every open question to the person at the terminal, then drive the run on."""
    while result.interrupts:
        for interrupt in result.interrupts:
            print(f"? {interrupt.reason} [y/N] ", end="", flush=True)
            yes = (await asyncio.to_thread(sys.stdin.readline)).strip().lower() in ("y", "yes")
            await decide(journal, interrupt.question, yes, actor=os.environ.get("USER", "terminal"))
        result = await resume_run(run_id=result.run_id, journal=journal, model=model, tools=[open_ticket])
    return result


async def chat(journal: Journal, model: OpenAIModel, thread: str, system: str) -> None:
    """Read lines until the end of input; each is one run."""
    history: list[Message] = []
    turn = len((await list_runs(journal, thread_id=thread)).runs)
    while line := await asyncio.to_thread(sys.stdin.readline):
        history.append(Message("user", (TextPart(line.strip()),)))
        turn += 1
        try:
            result = await run_durable(
                run_id=f"{thread}-turn-{turn}",
                journal=journal,
                model=model,
                tools=[open_ticket],
                messages=history,
                system=system,
                thread_id=thread,
            )
            result = await answer(journal, model, result)
        except (ModelError, DoubtError) as error:
            print(f"! {error}", file=sys.stderr)
            return
        history = list(result.messages)
        print(f"> {result.text}", flush=True)


def main() -> None:
    """Parse the command line and chat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="for instance http://127.0.0.1:8080/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key-env", default="OPENAI_API_KEY")
    parser.add_argument("--thread", default="chat")
    parser.add_argument("--db", default="chat.db", help="where the journal lives")
    parser.add_argument("--system", default="You are a helpful support agent. Answer in one sentence.")
    options = parser.parse_args()
    model = OpenAIModel(
        options.model, base_url=options.base_url, api_key=os.environ.get(options.key_env, "no key needed")
    )
    with SqliteStorage(options.db) as storage:
        asyncio.run(chat(storage.runs, model, options.thread, options.system))


if __name__ == "__main__":
    main()
