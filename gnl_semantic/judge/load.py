"""From the words on a command line to a judge."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from gnl_core.errors import MissingExtraError
from gnl_semantic.errors import JudgeConfigError
from gnl_semantic.judge.transport import JudgeTransport
from gnl_semantic.judge.transports.openai_compatible import MAX_TOKENS, OpenAICompatibleJudge
from gnl_semantic.judge.transports.python_file import load_python_judge
from gnl_semantic.judge.transports.recorded import RecordedJudge


def load_judge(
    spec: str,
    *,
    model: str | None = None,
    timeout_s: float = 8.0,
    key_env: str | None = None,
    max_tokens: int = MAX_TOKENS,
    extra_body: Mapping[str, object] | None = None,
) -> JudgeTransport:
    """Return the judge that `spec` names.

    ========================  ======================================================================
    spec                      judge
    ========================  ======================================================================
    ``builtin:ladder``        the rule ladder alone
    ``builtin:local``         the local judge, a small classifier; ``builtin:local?languages=tr,en`` declares the
                              languages of the records
    ``recorded:FILE``         the answers in the transcript of an exam
    ``openai:URL``            a server with OpenAI's chat completions, for instance
                              ``openai:http://127.0.0.1:8080/v1``
    ``path/judge.py[:name]``  `complete` (or `name`) of a Python file
    ``package.module:name``   an attribute of an importable module
    ========================  ======================================================================

    Args:
        spec: See above.
        model: Id of the model, which the certificate will bind. Needed for servers and Python code; a recorded judge
            refuses another id than its transcript's.
        timeout_s: Seconds one call may take.
        key_env: Name of the environment variable that holds a server's key; None sends none.
        max_tokens: Longest answer of a server's model.
        extra_body: Further fields of a request to a server.

    Raises:
        JudgeConfigError: There is no such judge, or it cannot be loaded.
        MissingExtraError: A server was named and the package `openai` is not installed.
    """
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise JudgeConfigError(f"the time limit is {timeout_s} s, must be a number above 0")
    kind, _, rest = spec.partition(":")
    match kind:
        case "builtin":
            return _builtin(rest, model)
        case "recorded":
            return RecordedJudge.load(rest, model=model)
        case "openai":
            return OpenAICompatibleJudge(
                rest,
                model=_needed(model, spec),
                timeout_s=timeout_s,
                key_env=key_env,
                max_tokens=max_tokens,
                extra_body=extra_body,
            )
        case _ if ":" in spec or spec.endswith(".py"):
            return load_python_judge(spec, model=_needed(model, spec), timeout_s=timeout_s)
        case _:
            raise JudgeConfigError(
                f"'{spec}' names no judge: give builtin:NAME, recorded:FILE, openai:URL, a path that ends in .py, "
                "or module:attribute"
            )


def _needed(model: str | None, spec: str) -> str:
    if model is None or not model.strip():
        raise JudgeConfigError(f"judge '{spec}' needs a model id (--model): the certificate binds it")
    return model


def _builtin(spec: str, model: str | None) -> JudgeTransport:
    name, asked, languages = spec.partition("?languages=")
    if name not in BUILTINS:
        raise JudgeConfigError(f"there is no built-in judge '{name}'; known: {', '.join(sorted(BUILTINS))}")
    tags = tuple(languages.split(",")) if asked else ()
    if asked and (name != "local" or not all(map(_TAG.fullmatch, tags))):
        raise JudgeConfigError(
            f"'builtin:{spec}': only builtin:local takes languages, as in builtin:local?languages=tr,en"
        )
    judge = BUILTINS[name](tags)
    if model not in (None, judge.info.model_id):
        raise JudgeConfigError(
            f"the model id of builtin:{name} is '{judge.info.model_id}', not '{model}': leave it out"
        )
    return judge


def _ladder(languages: Sequence[str]) -> JudgeTransport:  # noqa: ARG001  # one signature for all
    from gnl_semantic.judge.transports.ladder import LadderJudge  # noqa: PLC0415

    return LadderJudge()


def _local(languages: Sequence[str]) -> JudgeTransport:
    try:
        from gnl_semantic.judge.transports.local import LocalJudge  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("The local judge", "semantic") from error
    return LocalJudge(languages=languages)


BUILTINS: Mapping[str, Callable[[Sequence[str]], JudgeTransport]] = {"ladder": _ladder, "local": _local}
"""Judges that come with the package, by the name behind ``builtin:``."""
_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", re.ASCII)
"""A BCP 47 language tag, in outline."""
