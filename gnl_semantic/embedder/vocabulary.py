"""Build the built-in model's tokenizer from its vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnl_semantic.embedder.weights import Weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BEGIN, _PAD, _END, _UNKNOWN, _MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
_CONTROL = frozenset({_BEGIN, _PAD, _END, _UNKNOWN, _MASK})


def build_tokenizer(weights: Weights) -> Tokenizer:
    """Return a Unigram tokenizer of standard parts that gives the ids of the model's own one.

    Unlike that one it reads control tokens inside a text ('<s>', '<mask>') as the text they are.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors  # noqa: PLC0415

    # No text contains a space once the pre-tokenizer is through: with one in front, a control piece matches nothing.
    pieces = [(f" {piece}" if piece in _CONTROL else piece, score) for piece, score in weights.pieces]
    ids = {piece: index for index, (piece, _) in enumerate(weights.pieces) if piece in _CONTROL}
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=weights.unknown_id))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BEGIN} $A {_END}", special_tokens=[(token, ids[token]) for token in (_BEGIN, _END)]
    )
    return tokenizer
