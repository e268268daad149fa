"""Who runs: one process an entry, in this order in every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Tool = Literal["any", "async", "sync"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table.

    Attributes:
        label: What the row says.
        tool: Which table it stands in; 'any' is the floor of both.
        module: Adapter module.
        kind: Class in it.
        options: Keyword arguments of the class.
        package: Distributions whose versions are named.
        keeps: What one step leaves in the store, and with which guarantee.
        kill: What its documentation says of a process killed between the effect and its record.
    """

    label: str
    tool: Tool
    module: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    package: tuple[str, ...] = ()
    keeps: str
    kill: str


_RAW_KILL = "the row says 'running'; what that means is yours to write"
_C4A_KILL = "refused until reconcile= or a person says what happened"
_LANGGRAPH_KILL = "the node or task without a saved write is executed again"
_DBOS_KILL = "a step without a checkpoint is executed again (at least once)"
_OURS_KILL = "refused until recover= or a person says what happened"
_OURS = {
    "module": "peers.ours",
    "kind": "Ours",
    "package": ("gnl-semantic",),
    "keeps": "model answer and claim, result",
    "kill": _OURS_KILL,
}
_C4A = {"module": "peers.call4agents", "kind": "Call4Agents", "package": ("call4agents",), "kill": _C4A_KILL}
_GRAPH = {
    "module": "peers.langgraph",
    "kind": "Graph",
    "package": ("langgraph", "langgraph-checkpoint-sqlite"),
    "keeps": "a checkpoint of all messages after each node, waited for",
    "kill": _LANGGRAPH_KILL,
}
_FUNCTIONAL = {
    **_GRAPH,
    "kind": "Functional",
    "keeps": "a write a task, made while the next task already runs",
}
_DBOS = {
    "module": "peers.dbos",
    "kind": "Dbos",
    "package": ("dbos",),
    "keeps": "the result of each of 2 steps; no claim",
    "kill": _DBOS_KILL,
}
_BOTH = "intent, result, and the model answer (which its resume does not read)"
_EFFECTS = "intent, result; no model answer"


ROSTER: dict[str, Contender] = {
    "raw": Contender(
        label="raw sqlite3, 2 transactions",
        tool="any",
        module="peers.raw",
        kind="Raw",
        keeps="one row, written twice",
        kill=_RAW_KILL,
    ),
    "raw-ready": Contender(
        label="raw, its JSON made beforehand",
        tool="any",
        module="peers.raw",
        kind="Raw",
        options={"ready": True},
        keeps="one row, written twice",
        kill=_RAW_KILL,
    ),
    "raw-apart": Contender(
        label="raw, answer and call apart",
        tool="any",
        module="peers.raw",
        kind="Raw",
        options={"apart": True},
        keeps="a row of the answer, a row of the call written twice",
        kill=_RAW_KILL,
    ),
    "ours": Contender(label="gnl run_durable", tool="async", options={"asynchronous": True}, **_OURS),
    "call4agents": Contender(
        label="call4agents, effect + recorded",
        tool="async",
        options={"asynchronous": True, "recorded": True},
        keeps=_BOTH,
        **_C4A,
    ),
    "call4agents-effect": Contender(
        label="call4agents, effect alone",
        tool="async",
        options={"asynchronous": True, "recorded": False},
        keeps=_EFFECTS,
        **_C4A,
    ),
    "langgraph": Contender(label="langgraph, graph", tool="async", options={"asynchronous": True}, **_GRAPH),
    "langgraph-functional": Contender(
        label="langgraph, functional", tool="async", options={"asynchronous": True}, **_FUNCTIONAL
    ),
    "dbos": Contender(label="dbos", tool="async", options={"asynchronous": True, "wal": False}, **_DBOS),
    "dbos-wal": Contender(
        label="dbos, file set to WAL", tool="async", options={"asynchronous": True, "wal": True}, **_DBOS
    ),
    "ours-sync": Contender(label="gnl run_durable", tool="sync", options={"asynchronous": False}, **_OURS),
    "call4agents-sync": Contender(
        label="call4agents, effect + recorded",
        tool="sync",
        options={"asynchronous": False, "recorded": True},
        keeps=_BOTH,
        **_C4A,
    ),
    "call4agents-effect-sync": Contender(
        label="call4agents, effect alone",
        tool="sync",
        options={"asynchronous": False, "recorded": False},
        keeps=_EFFECTS,
        **_C4A,
    ),
    "langgraph-sync": Contender(label="langgraph, graph", tool="sync", options={"asynchronous": False}, **_GRAPH),
    "langgraph-functional-sync": Contender(
        label="langgraph, functional", tool="sync", options={"asynchronous": False}, **_FUNCTIONAL
    ),
    "dbos-sync": Contender(label="dbos", tool="sync", options={"asynchronous": False, "wal": False}, **_DBOS),
    "dbos-wal-sync": Contender(
        label="dbos, file set to WAL", tool="sync", options={"asynchronous": False, "wal": True}, **_DBOS
    ),
}
