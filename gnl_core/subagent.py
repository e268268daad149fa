"""A sub-agent as a tool: its run is a part of the same request, under one lock, with its own call ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnl_core.drive import Agent
from gnl_core.model.messages import ModelSettings

if TYPE_CHECKING:
    from gnl_core.model.router import ModelLike
    from gnl_core.tools import Tool


def agent_tool(
    *,
    name: str,
    description: str,
    model: ModelLike,
    tools: Sequence[Any] | Mapping[str, Any] = (),
    system: str | None = None,
    settings: ModelSettings | None = None,
    max_steps: int = 8,
) -> Tool:
    """Return a tool that hands a task to another agent.

    It takes one argument, `task`. It is no side effect itself: the sub-agent's own tools are claimed, asked about and
    recorded like any others, under the id of its own run, and their questions are answered there.

    Args:
        name: Name of the tool.
        description: What the model is told of it.
        model: The sub-agent's model, its name, or a list of them.
        tools: The sub-agent's tools.
        system: Its system prompt.
        settings: How it generates.
        max_steps: Most model steps of one task, at least 1.

    Raises:
        ConfigError: As for a run's own options.
    """
    import dataclasses  # noqa: PLC0415

    from gnl_core.tools import check_tools, tool  # noqa: PLC0415 - tools load pydantic

    agent = Agent(
        model=model,
        tools=check_tools(tools),
        system=system,
        settings=settings or ModelSettings(),
        max_steps=max_steps,
    )

    def delegate(task: str) -> tuple[Agent, str]:
        return agent, task

    made = tool(name=name, description=description, side_effect=False)(delegate)
    return dataclasses.replace(made, drives_run=True, inner=tuple(agent.tools.values()))
