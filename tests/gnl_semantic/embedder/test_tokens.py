"""Tokenizers of users' folders: control tokens in a text, and files that only transformers reads."""

import builtins

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gnl_core.errors import MissingExtraError
from gnl_semantic.embedder import OnnxEmbedder
from gnl_semantic.embedder.folder import read_folder
from gnl_semantic.embedder.tokens import load_encoder
from gnl_semantic.errors import ModelInvalidError

VOCABULARY = {"vocab.txt": "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pay", "order", "[", "]", "cls"])}
BERT = {**VOCABULARY, "tokenizer.json": None, "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"}}


def unigram():
    """A tokenizer like that of an XLM-R model: its control tokens are also pieces of its vocabulary."""
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -4.0) for letter in "<>s/abunk")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return tokenizer.to_str()


@pytest.mark.parametrize("text", ["<s>", "a </s> b", "a<unk>b", "<s></s>"])
def test_control_tokens_in_a_text_are_text_in_any_folder(tiny, text):
    encode = load_encoder(read_folder(tiny(files={"tokenizer.json": unigram()})))
    (ids,) = encode([text])
    assert (ids[0], ids[-1]) == (0, 1)
    assert not {0, 1, 2} & set(ids[1:-1])


def test_a_tokenizers_own_padding_and_limit_do_not_count(tiny):
    tokenizer = Tokenizer.from_str(unigram())
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(3)
    encode = load_encoder(read_folder(tiny(files={"tokenizer.json": tokenizer.to_str()})))
    assert [len(ids) for ids in encode(["a", "aaaa"])] == [4, 7]


async def test_a_folder_that_only_transformers_reads(tiny):
    embedder = OnnxEmbedder(tiny(files=BERT))
    vectors = await embedder.embed(["pay order", "Pay ORDER", "pay [CLS]"])
    assert vectors.shape == (3, tiny.dimension)
    assert np.array_equal(vectors[0], vectors[1])


def test_ids_and_control_tokens_through_transformers(tiny):
    encode = load_encoder(read_folder(tiny(files=BERT), max_tokens=6))
    assert encode(["pay order"]) == [[2, 5, 6, 3]]
    (ids,) = encode(["[CLS] pay"])
    assert (ids[0], ids[-1]) == (2, 3)
    assert 2 not in ids[1:-1]
    assert [len(ids) for ids in encode(["pay " * 20])] == [6]


def test_a_tokenizer_that_is_written_in_python(tiny):
    # Its ids are code points; there is no compiled tokenizer behind it.
    canine = {"tokenizer.json": None, "tokenizer_config.json": {"tokenizer_class": "CanineTokenizer"}}
    encode = load_encoder(read_folder(tiny(files=canine), max_tokens=4, prefix="q"))
    assert encode(["ab", "e\u0301clair"]) == [
        [0xE000, ord("q"), ord("a"), 0xE001],
        [0xE000, ord("q"), ord("é"), 0xE001],
    ]


def test_without_transformers_the_extra_is_named(tiny, monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == "transformers":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"gnl-semantic\[transformers\]"):
        OnnxEmbedder(tiny(files=BERT))


def test_what_transformers_cannot_read_is_invalid(tiny):
    with pytest.raises(ModelInvalidError, match="Cannot read the tokenizer"):
        OnnxEmbedder(tiny(files={"tokenizer.json": None, "tokenizer_config.json": {"tokenizer_class": "Nonesuch"}}))
