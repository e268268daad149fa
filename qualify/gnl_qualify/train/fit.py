"""Fit the classifier, and write what the judge reads. The only file that knows scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnl_semantic.judge.local.features import NAMES

MADE_WEIGHT = 0.3
"""Weight of a made near-miss; 1 a pair of the set. Chosen by cross-validation: at 0 the judge calls seven in ten
paraphrases with an exchanged number SAME, at 0.5 recall falls by another five points for little."""
_AGAINST = frozenset({
    "ladder_separate", "numbers_contradict", "numbers_any_contradict", "numbers_extra", "rest_low", "rest_high",
    "rest_count_low", "rest_count_high", "rest_share_low", "rest_share_high", "rest_longest_low", "rest_longest_high",
    "rest_codes_low", "rest_codes_high", "rest_units_facing", "rest_ideographs_low", "soft_worst", "soft_both_tails",
    "soft_longest_tail", "soft_shorter_tail", "soft_first_letter", "soft_prefixed", "soft_crossed_tails", "exchanged",
    "exchanged_clean", "swap_template", "places_exchanged",
})  # fmt: skip
_FOR = frozenset({"matched_share", "equal_share", "ladder_match", "rest_none", "numbers_matched", "cos_rest"})
MONOTONE = tuple(-1 if name in _AGAINST else 1 if name in _FOR else 0 for name in NAMES)
"""Evidence whose direction is known is held to it, however few pairs show it."""
Tree = list[list[float]]


class Fitted:
    """A sum of trees.

    Attributes:
        start: What every sum starts from.
        trees: See `gnl_semantic.judge.local.model.Parameters`.
    """

    def __init__(self, features: NDArray[np.float64], same: NDArray[np.bool_], weights: NDArray[np.float64]) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        with threadpool_limits(1):
            forest = HistGradientBoostingClassifier(
                max_iter=200,
                learning_rate=0.06,
                max_leaf_nodes=8,
                min_samples_leaf=15,
                l2_regularization=2.0,
                monotonic_cst=MONOTONE,
                early_stopping=False,
                random_state=0,
            ).fit(features, same, sample_weight=weights)
        self.start = round(float(forest._baseline_prediction.item()), 6)
        self.trees = [_tree(predictors[0].nodes) for predictors in forest._predictors]

    def sums(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the trees for each row."""
        total = np.full(len(features), self.start)
        for tree in self.trees:
            places = np.zeros(len(features), dtype=int)
            columns = [np.array([node[at] if len(node) == 4 else 0 for node in tree]) for at in range(4)]
            leaf = np.array([len(node) == 1 for node in tree])
            values = np.array([node[0] if len(node) == 1 else 0.0 for node in tree])
            while not leaf[places].all():
                feature = columns[0][places].astype(int)
                left = features[np.arange(len(features)), feature] <= columns[1][places]
                after = np.where(left, columns[2][places], columns[3][places]).astype(int)
                places = np.where(leaf[places], places, after)
            total += values[places]
        return total


def _tree(nodes: NDArray[np.void]) -> Tree:
    return [
        [round(float(node["value"]), 5)]
        if node["is_leaf"]
        else [int(node["feature_idx"]), round(float(node["num_threshold"]), 5), int(node["left"]), int(node["right"])]
        for node in nodes
    ]


def curve(sums: NDArray[np.float64], same: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and intercept of the logistic curve from sums, of pairs not trained on, to probabilities."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    fitted = LogisticRegression(C=1e6).fit(sums[:, None], same)
    return round(float(fitted.coef_.item()), 3), round(float(fitted.intercept_.item()), 3)


def dump(parameters: dict[str, object], trees: Sequence[Tree]) -> bytes:
    """Return the parameter file: one line a member, one line a tree."""
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in parameters.items()]
    rows = ",\n  ".join(json.dumps(tree, separators=(",", ":")) for tree in trees)
    return ("{\n" + ",\n".join((*head, f'"trees": [\n  {rows}\n]')) + "\n}\n").encode()
