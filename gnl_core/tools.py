"""Tools: a function, what a model is told of it, and what the runtime must know before it may run twice.

A tool that says nothing about itself is taken for a side effect: its call is made at most once, and after a crash a
person is asked. `side_effect=False` is the word for a tool that only reads.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack, overload

from gnl_core.approvals import MISSING
from gnl_core.canonical import args_hash, digest
from gnl_core.context import Context, active
from gnl_core.duplicates import EffectClass
from gnl_core.errors import ConfigError, NotCanonicalError, ToolArgumentsError, ToolDeclarationError
from gnl_core.identity import SemanticIdentity
from gnl_core.model.messages import ToolSpec
from gnl_core.tool_options import (
    Idempotency,
    ToolOptions,
    Window,
    check_function,
    check_name,
    check_options,
    read_hooks,
)
from gnl_core.tool_schema import Arguments, Signature, build_arguments, first_paragraph, read_signature

ToolPolicy = Literal["strict", "strict-critical"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A tool. Make it with `tool`; calling it runs the plain function, without a journal.

    Attributes:
        name: What a model calls it by: 1 to 64 of A-Z a-z 0-9 _ -.
        description: What a model is told of it.
        parameters: JSON schema of its arguments, an object.
        function: The body.
        is_async: Whether the body is a coroutine function; any other is meant for a thread.
        side_effect: Whether it acts on the world; an undeclared tool does.
        declared: Whether `side_effect`, `idempotent` or `recover` was given.
        idempotent: Whether running it again does no harm.
        idempotency: 'call': each call is work of its own. 'args': equal arguments are the same work.
        idempotency_key: Makes of the typed arguments the value that names the work, for instance the order's id.
        window: Within what equal arguments are the same work: 'run', 'thread' or 'cross-run'. Work that is named by its
            arguments or a key is given its recorded result there, and nobody is asked about it, inside or outside.
        recover: Asks the world how a call ended whose end nobody saw: {'done': bool, 'output': …}.
        lookup: Asks the world, before the body runs, whether the work is done: {'exists': bool, 'output': …}.
        confirm: Whether a person is asked before each call; a function of the typed arguments returns the reason.
        timeout: Seconds the body may take; None takes the run's.
        claim_ttl: Seconds after its claim that a body must be taken for alive; None takes the run's.
        max_retries: How often the body may begin, all in all.
        compensate: Undoes what the body did.
        untrusted: Whether its results come from strangers.
        semantic_identity: Which arguments name the job.
        effect_class: What it does, for `DuplicatesByClass`: 'transactional', 'notification', 'delete', 'external-api'
            or 'idempotent-write'.
        drives_run: Whether the body drives a run of its own.
        inner: The tools of the sub-agent whose run that is.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    is_async: bool
    side_effect: bool = True
    declared: bool = False
    idempotent: bool = False
    idempotency: Idempotency = "call"
    idempotency_key: Callable[[dict[str, Any]], object] | None = None
    window: Window = "run"
    recover: Callable[..., Any] | None = None
    lookup: Callable[..., Any] | None = None
    confirm: bool | Callable[[dict[str, Any]], str] = False
    timeout: float | None = None
    claim_ttl: float | None = None
    max_retries: int = 3
    compensate: Callable[..., Any] | None = None
    untrusted: bool = False
    semantic_identity: SemanticIdentity | None = None
    effect_class: EffectClass | None = None
    drives_run: bool = False
    inner: tuple[Tool, ...] = field(default=(), repr=False)
    arguments: Arguments = field(repr=False)
    hooks: tuple[tuple[Callable[..., Any], Signature], ...] = field(default=(), repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function: no journal, no validation, no `Context` filled in."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return ToolSpec(self.name, self.description, self.parameters)

    @property
    def args_mode(self) -> bool:
        """Whether equal arguments are the same work."""
        return self.idempotency == "args" or self.idempotency_key is not None or self.window != "run"

    def validate(self, args: Mapping[str, Any]) -> dict[str, object]:
        """Return typed arguments by name, defaults filled in.

        Types convert as JSON needs it ('2026-01-31' to a date, 5.0 to an int); unknown arguments are refused.

        Raises:
            ToolArgumentsError: They do not fit; the message is meant for the model.
        """
        return self.arguments.validate(args)

    def key_of(self, args: Mapping[str, Any]) -> str:
        """Return the 16 hex digits that name the work: of the arguments as written, or of their `idempotency_key`.

        Raises:
            ToolArgumentsError: `idempotency_key` found nothing in them that names the work.
            NotCanonicalError: They, or the key's value, have no canonical form.
        """
        if self.idempotency_key is None:
            return args_hash(args)
        typed = self.validate(args)
        try:
            value = self.idempotency_key(typed)
        except Exception as error:
            raise ToolArgumentsError(
                f"idempotency_key of tool '{self.name}' failed with {type(error).__name__} on these arguments, so the "
                "tool was not called",
                tool=self.name,
            ) from error
        if value is None or (isinstance(value, str | tuple) and not value):
            raise ToolArgumentsError(
                f"the arguments of '{self.name}' do not name the work: idempotency_key made {value!r} of them; fill "
                "the argument that names it",
                tool=self.name,
            )
        try:
            return digest(value)[:16]
        except NotCanonicalError as error:
            raise NotCanonicalError(f"idempotency_key of tool '{self.name}' returned {error}") from None

    def invoke(self, arguments: Mapping[str, object], context: Context | None) -> Any:
        """Call the body with typed arguments.

        Args:
            arguments: As `validate` returned them.
            context: For the parameters annotated with `Context`, and for `current_context()`.

        Returns:
            What the body returns; an awaitable when it `is_async` (or returns one of its own accord).
        """
        filled = {**arguments, **dict.fromkeys(self.arguments.context, context)}
        return _call(self.function, filled, context)

    def call_hook(
        self,
        hook: Callable[..., Any],
        args: Mapping[str, object],
        context: Context | None,
        output: object = MISSING,
    ) -> Any:
        """Call `recover`, `lookup` or `compensate` with as many of the arguments as its signature takes, by name.

        Args:
            hook: One of this tool's callables.
            args: Typed arguments, as `validate` returned them.
            context: For its parameters annotated with `Context`.
            output: What the call returned, for a parameter of that name.

        Returns:
            What it returns; an awaitable when it is async.
        """
        signature = next((known for function, known in self.hooks if function is hook), None)
        if signature is None:
            signature = read_signature(hook, f"a hook of tool '{self.name}'", {})
        offered = dict(args) if output is MISSING else {**args, "output": output}
        filled = {name: value for name, value in offered.items() if signature.takes_all or name in signature.parameters}
        return _call(hook, {**filled, **dict.fromkeys(signature.context, context)}, context)


def _call(function: Callable[..., Any], arguments: dict[str, Any], context: Context | None) -> Any:
    with active(context):
        result = function(**arguments)
    return _awaited(result, context) if inspect.isawaitable(result) else result


async def _awaited(result: Any, context: Context | None) -> Any:
    with active(context):
        return await result


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function; a decorator, with or without parentheses.

    The schema is made of the type hints, the descriptions of the docstring (its first paragraph, its Args section) or
    of `Annotated[..., Field(description=...)]`. A parameter annotated with `Context` is filled by the runtime.

    Args:
        function: A function or a bound method; sync or async.
        **options: See `Tool`. `name` and `description` default to the function's. `recover` and `lookup` only look, and
            have the tool's `timeout` for it, else the run's, else 60 seconds; later than that counts as no answer.

    Raises:
        ToolDeclarationError: The function or an option cannot be used; the message names both.
    """
    # Hints that are text may name classes of the function in which the tool is declared.
    namespace = sys._getframe(1).f_locals
    if function is not None:
        return _make(function, options, namespace)
    return lambda body: _make(body, options, namespace)


def _make(function: Callable[..., Any], options: ToolOptions, namespace: Mapping[str, Any]) -> Tool:
    if isinstance(function, Tool):
        raise ToolDeclarationError(f"'{function.name}' is a tool already; give it its options where it is made")
    name = check_name(options.get("name") or getattr(function, "__name__", type(function).__name__))
    check_function(function, name)
    arguments = build_arguments(function, name, namespace)
    check_options(name, options, arguments.names)
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    idempotent = options.get("idempotent", False)
    side_effect = options.get("side_effect")
    given |= {
        "name": name,
        "description": given["description"] if "description" in given else first_paragraph(function.__doc__),
        "side_effect": not idempotent if side_effect is None else side_effect,
    }
    return Tool(
        parameters=arguments.schema,
        function=function,
        is_async=inspect.iscoroutinefunction(function),
        declared=side_effect is not None or idempotent or options.get("recover") is not None,
        arguments=arguments,
        hooks=read_hooks(name, options, arguments.names, namespace),
        **given,
    )


# Sets of tools -----------------------------------------------------------------------------------------------------


def check_tools(
    tools: Sequence[Tool | Callable[..., Any]] | Mapping[str, Tool | Callable[..., Any]],
) -> dict[str, Tool]:
    """Return tools by name; plain functions become tools that are declared nothing about.

    Raises:
        ToolDeclarationError: Two tools of one name, a name that is not the tool's, or a function that makes no tool.
    """
    if isinstance(tools, Mapping):
        pairs = [(name, _as_tool(item, {"name": name})) for name, item in tools.items()]
    elif isinstance(tools, str | Tool) or not isinstance(tools, Iterable):
        raise ToolDeclarationError(f"tools is {type(tools).__name__}, must be a list of tools or functions")
    else:
        pairs = [(made.name, made) for made in (_as_tool(item, {}) for item in tools)]
    result: dict[str, Tool] = {}
    for name, item in pairs:
        if name != item.name:
            raise ToolDeclarationError(f"the tool '{item.name}' stands under the name '{name}'; use one of them")
        if name in result:
            raise ToolDeclarationError(f"two tools are called '{name}'; rename one by tool(name=...)", tool=name)
        result[name] = item
    return result


def _as_tool(item: Tool | Callable[..., Any], options: ToolOptions) -> Tool:
    return item if isinstance(item, Tool) else _make(item, options, {})


def check_tool_policy(tools: Mapping[str, Tool], policy: ToolPolicy | None) -> None:
    """Refuse tools that say too little about themselves for a policy, those of sub-agents among them.

    Args:
        tools: As `check_tools` returned them.
        policy: 'strict': each tool declares side_effect, idempotent or recover. 'strict-critical': each side effect
            has recover or idempotency_key. None asks for nothing.

    Raises:
        ToolDeclarationError: Naming every offender.
        ConfigError: No such policy.
    """
    match policy:
        case None:
            return
        case "strict":
            offenders = [name for name, item in _every(tools.values()) if not item.declared]
            need = "declare side_effect=, idempotent= or recover="
        case "strict-critical":
            offenders = [
                name
                for name, item in _every(tools.values())
                if item.side_effect and item.recover is None and item.idempotency_key is None
            ]
            need = "have recover= or idempotency_key= (or side_effect=False, if it only reads)"
        case _:
            raise ConfigError(f"tool_policy is {policy!r}, must be None, 'strict' or 'strict-critical'")
    if offenders:
        raise ToolDeclarationError(
            f"tool_policy '{policy}': each of these tools must {need}: {', '.join(offenders)}", tools=offenders
        )


def _every(tools: Iterable[Tool], of: str = "") -> Iterator[tuple[str, Tool]]:
    """Yield (name, tool) of tools and of their sub-agents' tools: 'charge', 'helper/charge'."""
    for item in tools:
        yield of + item.name, item
        yield from _every(item.inner, f"{of}{item.name}/")


# What recover and lookup say ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settled:
    """What the world says of a call.

    Attributes:
        done: Whether the work is done.
        output: What it came to; None where it is not done.
    """

    done: bool
    output: Any = None


def parse_settlement(value: object) -> Settled | None:
    """Return what `recover` ({'done': …}) or `lookup` ({'exists': …}) said, with its 'output'.

    None means that it said nothing that can be relied on: any other key (a misspelt 'output' must not become None),
    any other shape, a 'done' that is no bool.
    """
    if not isinstance(value, Mapping):
        return None
    match dict(value):
        case {"done": bool() as done, **rest} | {"exists": bool() as done, **rest} if not rest.keys() - {"output"}:
            return Settled(done, rest.get("output") if done else None)
        case _:
            return None
