"""The rule ladder in a judge's place: what the free rungs alone would have said."""

from __future__ import annotations

from gnl_core.identity import normalize_identity_value
from gnl_semantic.errors import JudgeError
from gnl_semantic.judge.prompt import parse_rendered
from gnl_semantic.judge.transport import JudgeInfo, Reply
from gnl_semantic.judge.verdict import Verdict
from gnl_semantic.ladder import RULESET_VERSION, Rules, evaluate

_VERDICTS = {"match": Verdict.SAME, "separate": Verdict.DIFFERENT, "gray": Verdict.UNSURE}


class LadderJudge:
    """Answers by the ladder with its default rules; reads nothing but the rendered prompt, like any judge."""

    def __init__(self) -> None:
        self._rules = Rules()
        self._info = JudgeInfo(
            model_id=f"builtin:ladder@{RULESET_VERSION}",
            spec="builtin:ladder",
            engine="ladder",
            parameters={"ruleset_version": RULESET_VERSION, "rules": self._rules.parameters()},
        )

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is."""
        return self._info

    async def complete(self, system: str, user: str) -> Reply:  # noqa: ARG002
        """Return SAME for a match, DIFFERENT for a separation, UNSURE for what stays gray.

        Raises:
            JudgeError: `user` was not rendered by the prompt in force.
        """
        try:
            tool, *records = parse_rendered(user)
        except ValueError as error:
            raise JudgeError(f"builtin:ladder: {error}") from None
        one, other = ({"record": normalize_identity_value(record.removeprefix(f"{tool}: "))} for record in records)
        return Reply(_VERDICTS[evaluate(one, other, self._rules).outcome].name)

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""
