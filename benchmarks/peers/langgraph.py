"""LangGraph with its sqlite saver and durability='sync', its strongest mode, in both of its interfaces.

`Graph`: the agent of its documentation, a model node and a `ToolNode` over the list of messages. Every superstep writes
a checkpoint that holds the whole list. `Functional`: `@entrypoint` and `@task`, a write a task; the list stays in
memory.
"""

# ruff: noqa: D102 - these are the methods of work.Peer, which says what they do
from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from peers import work

THREAD = "bench"


class _LangGraph:
    def __init__(self, *, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.counter = work.Counter()

        def add(account: str, amount: int, line: str, note: str) -> str:  # noqa: ARG001
            return json.dumps(self.counter.add(amount, account, line))

        async def add_async(account: str, amount: int, line: str, note: str) -> str:
            return add(account, amount, line, note)

        if asynchronous:
            self.tool = StructuredTool.from_function(coroutine=add_async, name=work.TOOL, description=work.DESCRIPTION)
        else:
            self.tool = StructuredTool.from_function(func=add, name=work.TOOL, description=work.DESCRIPTION)

    def answer(self, step: int) -> AIMessage:
        if step >= self.steps:
            return AIMessage(work.FINAL)
        call = ToolCall(name=work.TOOL, args=work.arguments(step), id=f"call_{step}", type="tool_call")
        return AIMessage("", tool_calls=[call])

    def open(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.runner = asyncio.Runner()
        if self.asynchronous:
            self.runner.run(self._open_async())
        else:
            self.connection = sqlite3.connect(work.database(folder), check_same_thread=False)
            self.saver = SqliteSaver(self.connection)
            self.saver.setup()
        self.graph = self.build()

    async def _open_async(self) -> None:
        self.aconnection = await aiosqlite.connect(work.database(self.folder))
        self.saver = AsyncSqliteSaver(self.aconnection)
        await self.saver.setup()

    def build(self) -> Any:
        raise NotImplementedError

    def input(self) -> Any:
        raise NotImplementedError

    def run(self) -> None:
        self._drive(self.input())

    def resume(self) -> None:
        self._drive(None)

    def _drive(self, value: Any) -> None:
        config = {"configurable": {"thread_id": THREAD}, "recursion_limit": 2 * self.steps + 10}
        if self.asynchronous:
            self.runner.run(self.graph.ainvoke(value, config, durability="sync"))
        else:
            self.graph.invoke(value, config, durability="sync")

    def settings(self) -> str:
        if not self.asynchronous:
            return work.settings_of(self.connection)

        async def ask() -> str:
            values = []
            for pragma in ("journal_mode", "synchronous"):
                async with self.aconnection.execute(f"PRAGMA {pragma}") as cursor:
                    values.append((await cursor.fetchone())[0])
            return work.spelled(*values)

        return self.runner.run(ask())

    def close(self) -> None:
        if self.asynchronous:
            self.runner.run(self.aconnection.close())
        else:
            self.connection.close()
        self.runner.close()


class Graph(_LangGraph):
    """StateGraph: model node, ToolNode, messages in the state."""

    def build(self) -> Any:
        def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
            return {"messages": [self.answer(len(state["messages"]) // 2)]}

        async def amodel(state: MessagesState) -> dict[str, list[AnyMessage]]:
            return model(state)

        graph = StateGraph(MessagesState)
        graph.add_node("model", amodel if self.asynchronous else model)
        graph.add_node("tools", ToolNode([self.tool]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=self.saver)

    def input(self) -> Any:
        return {"messages": [HumanMessage(work.PROMPT)]}

    def durable_steps(self) -> int:
        # One checkpoint for the input, one at the start, one after each node; and what the newest one says.
        rows = work.count(self.folder, "SELECT count(*) FROM checkpoints WHERE thread_id = ?", THREAD)
        connection = sqlite3.connect(work.database(self.folder), check_same_thread=False)
        try:
            newest = SqliteSaver(connection).get({"configurable": {"thread_id": THREAD}})
        finally:
            connection.close()
        messages = newest["channel_values"]["messages"] if newest else []
        results = sum(isinstance(message, ToolMessage) for message in messages)
        return min((rows - 3) // 2, results)


class Functional(_LangGraph):
    """@entrypoint with a @task a model call and a @task a tool call."""

    def build(self) -> Any:
        return self._async_entrypoint() if self.asynchronous else self._sync_entrypoint()

    def _async_entrypoint(self) -> Any:
        @task
        async def call_model(messages: list[AnyMessage]) -> AIMessage:
            return self.answer(len(messages) // 2)

        @task
        async def call_tool(call: ToolCall) -> ToolMessage:
            return await self.tool.ainvoke(call)

        @entrypoint(checkpointer=self.saver)
        async def agent(messages: list[AnyMessage]) -> str:
            answer = await call_model(messages)
            while answer.tool_calls:
                messages.append(answer)
                messages.append(await call_tool(answer.tool_calls[0]))
                answer = await call_model(messages)
            return str(answer.content)

        return agent

    def _sync_entrypoint(self) -> Any:
        @task
        def call_model(messages: list[AnyMessage]) -> AIMessage:
            return self.answer(len(messages) // 2)

        @task
        def call_tool(call: ToolCall) -> ToolMessage:
            return self.tool.invoke(call)

        @entrypoint(checkpointer=self.saver)
        def agent(messages: list[AnyMessage]) -> str:
            answer = call_model(messages).result()
            while answer.tool_calls:
                messages.append(answer)
                messages.append(call_tool(answer.tool_calls[0]).result())
                answer = call_model(messages).result()
            return str(answer.content)

        return agent

    def input(self) -> Any:
        return [HumanMessage(work.PROMPT)]

    def durable_steps(self) -> int:
        # A write a task: two a step, one for the last answer; the entrypoint itself writes under another channel.
        query = "SELECT count(DISTINCT task_id) FROM writes WHERE thread_id = ? AND channel = '__return__'"
        return (work.count(self.folder, query, THREAD) - 1) // 2
