"""The local judge: a small classifier in a judge's place, without a language model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from gnl_core.identity import normalize_identity_value
from gnl_semantic.embedder.load import load_embedder
from gnl_semantic.embedder.port import Embedder, Vectors
from gnl_semantic.errors import EmbedderError, JudgeConfigError, JudgeError
from gnl_semantic.judge.local.features import collect, cosines, vector
from gnl_semantic.judge.local.model import shipped_model
from gnl_semantic.judge.local.scripts import main_scripts, scripts_of_languages
from gnl_semantic.judge.prompt import parse_rendered
from gnl_semantic.judge.transport import JudgeInfo, Reply
from gnl_semantic.judge.verdict import Verdict

LONGEST = 512
"""Characters of a record from which the answer is UNSURE: the training pairs are far shorter."""
_REMEMBERED = 4096


class LocalJudge:
    """Answers by evidence of the two records; reads nothing but the rendered prompt, like any judge.

    UNSURE where it was not tried: longer texts than `LONGEST`, two records in two scripts, scripts outside its list,
    and scripts in which a declared language is written that is not on its list.

    Args:
        languages: BCP 47 tags of the languages the records are in, where the caller knows; () declares nothing.
        embedder: By default the one it was trained with, loaded here: this blocks for about a second.

    Raises:
        JudgeConfigError: The parameters cannot be used, or the embedder is another one than they were made with.
        ModelNotFoundError: The embedder's weights are not installed.
    """

    def __init__(self, *, languages: Sequence[str] = (), embedder: Embedder | None = None) -> None:
        self._model = shipped_model()
        parameters = self._model.parameters
        if embedder is not None and embedder.model_id != parameters.embedder:
            raise JudgeConfigError(
                f"builtin:local was trained with the embedder '{parameters.embedder}', not '{embedder.model_id}'"
            )
        self._embedder = embedder or load_embedder(parameters.embedder)
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        untried = [tag for tag in languages if tag.partition("-")[0].lower() not in parameters.languages]
        held = frozenset(parameters.scripts) - scripts_of_languages(untried)
        self._scripts = held & scripts_of_languages(languages) if languages else held
        spec = "builtin:local" + (f"?languages={','.join(languages)}" if languages else "")
        self._info = JudgeInfo(
            model_id=f"builtin:local@{parameters.v}",
            spec=spec,
            engine="local",
            parameters={
                "parameters_sha256": self._model.sha256,
                "trained_on": parameters.trained_on,
                "embedder": parameters.embedder,
                "same_from": parameters.same_from,
                "different_below": parameters.different_below,
                "scripts": sorted(self._scripts),
                "declared_languages": list(languages),
                "longest": LONGEST,
            },
        )

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is."""
        return self._info

    async def complete(self, system: str, user: str) -> Reply:  # noqa: ARG002
        """Return SAME from one probability on, DIFFERENT below another, UNSURE between and where it was not tried.

        Raises:
            JudgeError: `user` was not rendered by the prompt in force, or the embedder failed.
        """
        try:
            tool, *records = parse_rendered(user)
        except ValueError as error:
            raise JudgeError(f"builtin:local: {error}") from None
        a, b = (normalize_identity_value(record.removeprefix(f"{tool}: ")) for record in records)
        if not self._covers(a, b):
            return Reply(Verdict.UNSURE.name)
        probability = await self.probability(a, b)
        if probability >= self._model.parameters.same_from:
            return Reply(Verdict.SAME.name)
        below = probability < self._model.parameters.different_below
        return Reply((Verdict.DIFFERENT if below else Verdict.UNSURE).name)

    async def probability(self, a: str, b: str) -> float:
        """Return how probably two identity values name one job, as calibrated on the training set, 0 to 1.

        Raises:
            JudgeError: The embedder failed.
        """
        evidence = collect(a, b)
        vectors = await self._embed(evidence.texts)
        return self._model.probability(vector(evidence.values, cosines(evidence, vectors)))

    async def aclose(self) -> None:
        """Do nothing: nothing is held but memory."""

    def _covers(self, a: str, b: str) -> bool:
        if max(len(a), len(b)) > LONGEST:
            return False
        one, other = main_scripts(a), main_scripts(b)
        # A code alone has Latin letters or none, and stands for a name in any script.
        return one | other <= self._scripts and (one == other or not (one and other))

    async def _embed(self, texts: Sequence[str]) -> Vectors:
        # Held here too: while this call awaits the embedder, another one may drop them from memory.
        known = {text: self._vectors[text] for text in texts if text in self._vectors}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            try:
                found = await self._embedder.embed(missing)
            except EmbedderError as error:
                raise JudgeError(f"builtin:local: {error}") from error
            fresh = dict(zip(missing, found, strict=True))
            known |= fresh
            self._vectors.update(fresh)
        while len(self._vectors) > _REMEMBERED:
            self._vectors.popitem(last=False)
        return np.stack([known[text] for text in texts])
