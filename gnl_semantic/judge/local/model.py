"""The local judge's parameters and what they answer: a sum of small decision trees, kept as JSON.

The file is data: no code in it, nothing unknown, and a hash that certificates carry. scikit-learn makes it
(`gnl_qualify.train`); reading and applying it takes numpy at most.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from gnl_semantic.errors import JudgeConfigError
from gnl_semantic.judge.local.atoms import lexicon_bytes
from gnl_semantic.judge.local.features import NAMES

FORMAT = 1
_Share = Annotated[float, Field(ge=0, le=1)]
_Index = Annotated[int, Field(ge=0)]
_Split = tuple[_Index, float, _Index, _Index]
_Node = _Split | tuple[float]


class Parameters(BaseModel):
    """The file `parameters.json`.

    Attributes:
        v: Format version.
        trained_on: Id of the set of pairs.
        embedder: Stamp of the embedder whose cosines the trees know.
        lexicon_sha256: Of the file `lexicon.json`, which is as much a part of the answers as the trees.
        features: Names, in the order the trees count them.
        scripts: ISO 15924 codes of the scripts the judge answers in.
        languages: BCP 47 tags of the languages it was tried in.
        same_from: Probability from which the answer is SAME.
        different_below: Probability below which it is DIFFERENT.
        slope: Of the logistic curve from the trees' sum to a probability.
        intercept: Of the same curve.
        start: What every sum starts from.
        trees: Nodes of each tree, the root in front: feature, largest value that goes left, left, right; or a leaf's
            one value.
    """

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True, allow_inf_nan=False)

    v: Literal[1]
    trained_on: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    embedder: str
    lexicon_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    features: tuple[str, ...]
    scripts: tuple[str, ...]
    languages: tuple[str, ...]
    same_from: _Share
    different_below: _Share
    slope: float
    intercept: float
    start: float
    trees: Annotated[tuple[tuple[_Node, ...], ...], Field(max_length=2000)]

    @model_validator(mode="after")
    def _fits(self) -> Parameters:
        if self.features != NAMES:
            raise ValueError("the features are not those of this release")
        if self.lexicon_sha256 != hashlib.sha256(lexicon_bytes()).hexdigest():
            raise ValueError("lexicon.json is not the one they were made with")
        if self.different_below > self.same_from:
            raise ValueError("different_below lies above same_from")
        for number, tree in enumerate(self.trees):
            for place, node in enumerate(tree):
                # Children stand behind their parent, so that every walk ends.
                if len(node) == 4 and not (node[0] < len(NAMES) and place < min(node[2:]) <= max(node[2:]) < len(tree)):
                    raise ValueError(f"tree {number}, node {place}: points outside")
            if not tree:
                raise ValueError(f"tree {number} is empty")
        return self


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters, and the SHA-256 of the file they came from."""

    parameters: Parameters
    sha256: str

    def probability(self, features: Sequence[float]) -> float:
        """Return how probably two texts with these features name one job, 0 to 1, as calibrated on the training set."""
        parameters = self.parameters
        total = parameters.start
        for tree in parameters.trees:
            node = tree[0]
            while len(node) == 4:
                node = tree[node[2] if features[node[0]] <= node[1] else node[3]]
            total += node[0]
        return 1 / (1 + math.exp(-max(min(parameters.slope * total + parameters.intercept, 60.0), -60.0)))


def read_model(data: bytes) -> Model:
    """Return the model in the bytes of a parameter file.

    Raises:
        JudgeConfigError: They are no such file, or one of another release.
    """
    try:
        return Model(Parameters.model_validate(json.loads(data)), hashlib.sha256(data).hexdigest())
    except (ValueError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise JudgeConfigError(f"the local judge's parameters cannot be used: {reason}; run make train") from None


@lru_cache(maxsize=1)
def shipped_model() -> Model:
    """Return the model of this release.

    Raises:
        JudgeConfigError: Its file is missing or was changed into something else.
    """
    try:
        return read_model((files("gnl_semantic.judge.local") / "parameters.json").read_bytes())
    except OSError as error:
        raise JudgeConfigError(f"the local judge's parameters cannot be read: {error}; run make train") from None
