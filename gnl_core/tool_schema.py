"""From a function's signature to the JSON schema that a model reads, and back from its arguments to typed ones.

pydantic is imported with the first tool that is built, never with this module.
"""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from gnl_core.context import Context
from gnl_core.errors import ToolArgumentsError, ToolDeclarationError
from gnl_core.journal.port import JsonValue

MAX_DEPTH = 100
"""How deeply arguments may be nested."""

_SHOWN_ERRORS = 8
_SHOWN_TEXT = 300
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called.

    Attributes:
        parameters: Those that carry arguments, by name.
        hints: Their resolved type hints; a parameter without one has no entry.
        context: Names of the parameters that take the `Context`.
        takes_all: Whether it has **kwargs.
    """

    parameters: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]
    context: tuple[str, ...]
    takes_all: bool = False


def read_signature(function: Callable[..., Any], owner: str, namespace: Mapping[str, Any]) -> Signature:
    """Return how a function is called by name.

    Args:
        function: The function.
        owner: What it is, for messages: "tool 'charge'", "recover of tool 'charge'".
        namespace: Local names of the place of declaration, for hints that are text.

    Raises:
        ToolDeclarationError: It cannot be called by name alone, or a hint names nothing.
    """
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise ToolDeclarationError(f"{owner}: its signature cannot be read ({error}); wrap it in a def") from None
    hints = _resolved_hints(function, owner, namespace)
    takes_all = False
    for name, parameter in list(parameters.items()):
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ToolDeclarationError(
                f"{owner}: parameter '{name}' is positional-only; arguments come by name, so take out the '/'",
                option=name,
            )
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise ToolDeclarationError(
                f"{owner}: *{name} cannot be filled by name; take a parameter '{name}: list[...]' instead", option=name
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            takes_all = True
            del parameters[name]
    context = tuple(name for name in parameters if _is_context(hints.get(name)))
    for name in context:
        del parameters[name]
    return Signature(parameters, {name: hints[name] for name in parameters if name in hints}, context, takes_all)


def _resolved_hints(function: Callable[..., Any], owner: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    annotations = dict(getattr(function, "__annotations__", None) or getattr(function.__call__, "__annotations__", {}))  # type: ignore[operator] # an object that is called
    annotations.pop("return", None)  # often imported for the type checker alone, and of no use here
    inner = inspect.unwrap(function)
    names = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    resolved: dict[str, Any] = {}
    for name, annotation in annotations.items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            try:
                resolved |= typing.get_type_hints(holder, globalns=names, include_extras=True)
            except NameError:
                resolved |= typing.get_type_hints(holder, globalns=names, localns=dict(namespace), include_extras=True)
        except Exception as error:
            raise ToolDeclarationError(
                f"{owner}: the type hint of parameter '{name}' cannot be resolved ({error}); import its names where "
                "the function is defined, outside of 'if TYPE_CHECKING'",
                option=name,
            ) from None
    return resolved


def _is_context(hint: object) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _is_context(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_context(member) for member in typing.get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Context)


# Schema ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a tool's arguments must look like.

    Attributes:
        tool: Name of the tool.
        names: Parameters, in order.
        schema: JSON schema of the object a model writes.
        context: Names of the parameters that take the `Context`.
        model: The pydantic model that validates; its fields are 'a0', 'a1' …, so that no parameter's name can clash
            with a method of pydantic's.
    """

    tool: str
    names: tuple[str, ...]
    schema: dict[str, JsonValue]
    context: tuple[str, ...]
    model: Any

    def validate(self, args: object) -> dict[str, object]:
        """Return typed arguments by name, defaults filled in.

        Raises:
            ToolArgumentsError: They do not fit; the message is meant for the model.
        """
        from pydantic import ValidationError  # noqa: PLC0415 - loaded with the first tool

        if not isinstance(args, dict):
            raise ToolArgumentsError(
                f"the arguments of '{self.tool}' are {_kind(args)}, must be a JSON object", tool=self.tool
            )
        raw = checked_copy(args, self.tool)
        try:
            typed = self.model.model_validate(raw)
        except ValidationError as error:
            raise self._misfit(error) from None
        except RecursionError:
            raise ToolArgumentsError(f"the arguments of '{self.tool}' are nested too deeply", tool=self.tool) from None
        except Exception as error:  # a validator of the tool's own types
            raise ToolArgumentsError(
                f"the arguments of '{self.tool}' could not be checked: {type(error).__name__}", tool=self.tool
            ) from error
        return {name: getattr(typed, f"a{position}") for position, name in enumerate(self.names)}

    def _misfit(self, error: Any) -> ToolArgumentsError:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        lines = []
        for fault in faults[:_SHOWN_ERRORS]:
            field = _path(fault["loc"])
            match fault["type"]:
                case "missing":
                    problem = "is missing"
                case "extra_forbidden":
                    problem = "is no argument of this tool" if len(fault["loc"]) == 1 else "is not allowed here"
                case _:
                    problem = str(fault["msg"])[:_SHOWN_TEXT]
            lines.append(f"{field[:_SHOWN_TEXT]}: {problem}")
        if len(faults) > _SHOWN_ERRORS:
            lines.append(f"and {len(faults) - _SHOWN_ERRORS} more")
        takes = ", ".join(self.names) or "none"
        return ToolArgumentsError(
            f"the arguments of '{self.tool}' do not fit: {'; '.join(lines)}. It takes: {takes}",
            tool=self.tool,
            fields=[_path(fault["loc"])[:_SHOWN_TEXT] for fault in faults[:_SHOWN_ERRORS]],
        )


def build_arguments(function: Callable[..., Any], tool: str, namespace: Mapping[str, Any]) -> Arguments:
    """Return the schema and the validator of a function's arguments.

    Raises:
        ToolDeclarationError: A parameter has no type hint, or one that has no JSON schema; the message names it.
    """
    from pydantic import ConfigDict, create_model  # noqa: PLC0415 - keeps `import gnl_core` light

    owner = f"tool '{tool}'"
    signature = read_signature(function, owner, namespace)
    if signature.takes_all:
        raise ToolDeclarationError(f"{owner}: **kwargs has no schema; name its parameters", option="**kwargs")
    texts = _parameter_texts(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    for position, (name, parameter) in enumerate(signature.parameters.items()):
        if name not in signature.hints:
            way_out = "decorate the bound method: tool(thing.method)" if name in ("self", "cls") else "write one"
            raise ToolDeclarationError(
                f"{owner}: parameter '{name}' has no type hint, and the schema is made of them; {way_out}", option=name
            )
        fields[f"a{position}"] = _field(owner, parameter, signature.hints[name], texts.get(name))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, populate_by_name=False)
    try:
        model = create_model("Arguments", __config__=config, **fields)
        schema = _schema(model)
    except Exception as error:
        name = _unsupported(signature, fields)
        raise ToolDeclarationError(
            f"{owner}: parameter '{name}' has a type that a model cannot be told of: {_first_line(error)}", option=name
        ) from None
    return Arguments(tool, tuple(signature.parameters), schema, signature.context, model)


def _field(owner: str, parameter: inspect.Parameter, hint: Any, text: str | None) -> tuple[Any, Any]:
    from pydantic import Field  # noqa: PLC0415 - loaded with the first tool
    from pydantic.fields import FieldInfo  # noqa: PLC0415

    options: dict[str, Any] = {"alias": parameter.name}
    metadata = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    if not any(isinstance(item, FieldInfo) and item.description for item in metadata):
        text = next((item for item in metadata if isinstance(item, str)), text)
        if text:
            options["description"] = text
    default = parameter.default
    if isinstance(default, FieldInfo):
        raise ToolDeclarationError(
            f"{owner}: parameter '{parameter.name}' has a Field as its default, which a direct call would meet; use "
            "Annotated[..., Field()]",
            option=parameter.name,
        )
    if default is _EMPTY:
        return hint, Field(**options)
    return (hint | None if default is None else hint), Field(default=default, **options)


def _schema(model: Any) -> dict[str, JsonValue]:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - loaded with the first tool

    class Untitled(GenerateJsonSchema):
        """A title that only repeats a name costs tokens and tells nothing."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
            return False

    schema: dict[str, JsonValue] = model.model_json_schema(by_alias=True, schema_generator=Untitled)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    schema["additionalProperties"] = False
    return schema


def _unsupported(signature: Signature, fields: Mapping[str, Any]) -> str:
    from pydantic import create_model  # noqa: PLC0415 - loaded with the first tool

    for position, name in enumerate(signature.parameters):
        try:
            _schema(create_model("Argument", value=fields[f"a{position}"]))
        except Exception:
            return name
    return ", ".join(signature.parameters)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:_SHOWN_TEXT]


# Texts -------------------------------------------------------------------------------------------------------------


def first_paragraph(doc: str | None) -> str:
    """Return the first paragraph of a docstring on one line, '' where there is none."""
    paragraph = inspect.cleandoc(doc or "").split("\n\n", 1)[0]
    return " ".join(paragraph.split())


_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def _parameter_texts(doc: str) -> dict[str, str]:
    """Read the Args section of a Google docstring."""
    texts: dict[str, list[str]] = {}
    lines = iter(doc.splitlines())
    if not any(_SECTION.fullmatch(line) for line in lines):
        return {}
    indent, current = 0, None
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = indent or depth
        item = _ITEM.fullmatch(line.strip()) if depth <= indent else None
        if item:
            current = item[1]
            texts[current] = [item[2]]
        elif current is not None:
            texts[current].append(line.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in texts.items()}


# Raw arguments -----------------------------------------------------------------------------------------------------


def checked_copy(value: Any, tool: str, path: str = "", depth: int = 0) -> Any:
    """Copy what a strict JSON writer could have written, before a validator makes something of it.

    A copy, since a body may change what it is given, and the record of the call holds what the model wrote.

    Raises:
        ToolArgumentsError: NaN or an infinity (1e400 reads as one), a lone surrogate, or nesting over 100 levels.
    """
    match value:
        case float() if not math.isfinite(value):
            problem = "NaN and Infinity are no numbers here; pass a finite number or leave it out"
        case str() if not value.isascii() and _broken(value):
            problem = "the text holds half of a surrogate pair"
        case dict() | list() | tuple() if depth >= MAX_DEPTH:
            problem = f"the value is nested more than {MAX_DEPTH} levels deep"
        case dict():
            return {
                checked_copy(key, tool, path, depth + 1): checked_copy(
                    item, tool, f"{path}.{key}" if path else str(key), depth + 1
                )
                for key, item in value.items()
            }
        case list():
            return [checked_copy(item, tool, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        case tuple():
            return tuple(checked_copy(item, tool, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
        case _:
            return value
    raise ToolArgumentsError(
        f"the arguments of '{tool}' do not fit: {path[:_SHOWN_TEXT] or 'a key'}: {problem}", tool=tool
    )


def _broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "arguments"


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
