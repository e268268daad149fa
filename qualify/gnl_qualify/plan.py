"""What is asked in one sitting: every item once, a sample of them again, a sample with its records reversed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gnl_qualify.items import Item, Paper
from gnl_qualify.sample import stratified
from gnl_semantic.judge.prompt import Prompt

Round = Literal["main", "repeat", "reversed"]


class QuestionId(NamedTuple):
    """Names one question of a sitting."""

    item: str
    round: Round
    repeat: int


@dataclass(frozen=True, slots=True)
class Question:
    """One call of the judge.

    Attributes:
        id: Which item, which round, which repetition (0 outside the repeat round).
        user: The rendered user text.
        prompt_sha256: SHA-256 of `user` in UTF-8, 64 hex digits.
    """

    id: QuestionId
    user: str
    prompt_sha256: str


def questions_of(
    paper: Paper, prompt: Prompt, *, seed: int, repeat_sample: int, repeats: int, order_sample: int
) -> tuple[Question, ...]:
    """Return all questions of a sitting in the order they are put.

    Args:
        paper: The blind items and their key; the key only spreads the samples over the labels.
        prompt: Renders the user text.
        seed: Decides the samples.
        repeat_sample: Pairs to ask again; 0 for none.
        repeats: How many times each of them is asked again.
        order_sample: Pairs to put with their records in reverse of the canonical order; 0 for none.
    """
    again = _sampled(paper, paper.items, repeat_sample, seed, "repeat")
    # Two equal records have no order to reverse.
    ordered = [i for i in paper.items if _text(prompt, i) != _text(prompt, i, reverse=True)] if order_sample else []
    return (
        *(_question(prompt, item, "main") for item in paper.items),
        *(_question(prompt, item, "repeat", repeat) for repeat in range(1, repeats + 1) for item in again),
        *(_question(prompt, item, "reversed") for item in _sampled(paper, ordered, order_sample, seed, "reversed")),
    )


def _sampled(paper: Paper, items: Sequence[Item], n: int, seed: int, purpose: str) -> list[Item]:
    pairs = [paper.key[item.id] for item in items]
    chosen = {pair.id for pair in stratified(pairs, n, seed=seed, purpose=purpose)}
    return [item for item in items if paper.key[item.id].id in chosen]


def _question(prompt: Prompt, item: Item, round_: Round, repeat: int = 0) -> Question:
    user = _text(prompt, item, reverse=round_ == "reversed")
    return Question(QuestionId(item.id, round_, repeat), user, hashlib.sha256(user.encode()).hexdigest())


def _text(prompt: Prompt, item: Item, *, reverse: bool = False) -> str:
    return prompt.render(item.tool_name, item.first, item.second, reverse=reverse)
