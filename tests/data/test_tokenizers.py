"""Tokenizers: byte-pair encoding against a slow, plain one, other libraries' files
(made here, in their layouts), and other libraries where they are installed."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data import BPE, CharTokenizer, TokenizerError, load_tokenizer
from minitorch.data.text import formats
from minitorch.data.text.merging import merge, merge_pair, train_merges
from minitorch.data.text.split import GPT2, GPT4, pieces

SAMPLE = (
    "The quick brown fox can't say what the others' dogs have said: they've said it "
    "12345 times, in 1979 and\n\n   later!  Größe, naïve café; 東京 ½ Ⅻ x²\r\n\t?! "
) * 3
END = "<|endoftext|>"

# Text of few letters has pairs that come often, and merges of merges.
few = st.text("ab \n'1", max_size=60)
# Characters that this Python knows: what came later is a letter to others only.
known = st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=40)
trained = pytest.fixture(scope="module")(
    lambda: BPE.train(SAMPLE, 330, special_tokens=[END, "<|end|>"])
)


def slow_training(words: Counter[bytes], number: int) -> tuple[list[bytes], list[Any]]:
    """Count all pairs, merge the most frequent one, and begin again."""
    tokens = [bytes([i]) for i in range(256)]
    split = {word: list(word) for word in words}
    merges: list[Any] = []
    while len(tokens) < number:
        counts: Counter[Any] = Counter()
        for word, ids in split.items():
            for pair in pairwise(ids):
                counts[pair] += words[word]
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < 2:
            break
        made = tokens[best[0]] + tokens[best[1]]
        if made not in tokens:
            tokens.append(made)
        if best not in merges:
            merges.append(best)
        new = tokens.index(made)
        split = {word: merge_pair(ids, best, new) for word, ids in split.items()}
    return tokens, merges


def slow_merging(ids: list[int], merges: Any) -> list[int]:
    """Look for the pair of the lowest rank, merge the first one, and begin again."""
    ids = list(ids)
    while ranks := [
        (merges[pair][0], i) for i, pair in enumerate(pairwise(ids)) if pair in merges
    ]:
        _, i = min(ranks)
        ids[i : i + 2] = [merges[ids[i], ids[i + 1]][1]]
    return ids


# ------------------------------------------------------------------------ properties


@given(text=few, number=st.integers(256, 290))
def test_training_is_the_slow_one(text: str, number: int) -> None:
    words = Counter(piece.encode() for piece in pieces(GPT2, text))
    assert train_merges(words, number) == slow_training(words, number)
    whole = Counter([text.encode()])
    assert train_merges(whole, number) == slow_training(whole, number)


pair = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(
    ids=st.lists(st.integers(0, 3), max_size=30),
    merges=st.dictionaries(pair, st.tuples(st.integers(0, 6), st.integers(0, 5))),
)
def test_merging_is_the_slow_one(ids: list[int], merges: Any) -> None:
    """Whatever the merges: equal ranks, ranks in any order, tokens made in two ways."""
    assert merge(ids, merges) == slow_merging(ids, merges)


@given(text=few, number=st.integers(256, 290))
def test_encoding_is_that_of_training(text: str, number: int) -> None:
    """The merges in the order in which they were learnt, each everywhere."""
    tokenizer = BPE.train(text, number)
    expected: list[int] = []
    for piece in pieces(GPT2, text):
        ids = list(piece.encode())
        assert tokenizer.merges is not None
        ranks = {p: (i, 0) for i, p in enumerate(tokenizer.merges)}
        made = {p: tokenizer._merges[p][1] for p in ranks}
        expected += slow_merging(ids, {p: (ranks[p][0], made[p]) for p in ranks})
    assert tokenizer.encode(text) == expected


@given(text=st.text())
def test_any_text_comes_back(trained: BPE, text: str) -> None:
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert all(0 <= i < trained.vocab_size for i in ids)
    assert trained.encode_bytes(text.encode()) == ids


@given(content=st.binary())
def test_any_bytes_come_back(trained: BPE, content: bytes) -> None:
    assert trained.decode_bytes(trained.encode_bytes(content)) == content


@pytest.mark.parametrize("pattern", [GPT2, GPT4, r"\d", None])
@given(text=st.text())
def test_pieces_are_the_text(pattern: str | None, text: str) -> None:
    assert "".join(pieces(pattern, text)) == text


@given(text=st.text(min_size=1), start=st.data())
def test_characters_come_back(text: str, start: Any) -> None:
    tokenizer = CharTokenizer.train(text)
    some = text[start.draw(st.integers(0, len(text))) :]
    assert tokenizer.decode(tokenizer.encode(some)) == some
    assert tokenizer.vocab_size == len(set(text))


def test_a_long_piece_is_no_trouble(trained: BPE) -> None:
    """The time grows with n log n; by the square it would be minutes."""
    text = "the" * 100_000
    assert trained.decode(trained.encode(text)) == text


# ------------------------------------------------------------------- what is promised


def test_pieces_of_gpt_2() -> None:
    text = "We've  got\n\n 12 dogs; they'll bark!? Größe_x½"
    assert list(pieces(GPT2, text)) == [
        "We", "'ve", " ", " got", "\n\n", " 12", " dogs", ";", " they", "'ll", " bark",
        "!?", " Größe", "_", "x", "½",
    ]  # fmt: skip
    assert list(pieces(GPT4, "WE'VE 12345\r\n")) == [
        "WE",
        "'VE",
        " ",
        "123",
        "45",
        "\r\n",
    ]


def test_numbers_of_tokens(trained: BPE) -> None:
    assert trained.encode_bytes(b"\x00\xff") == [0, 255]
    assert trained.tokens[b" the"] >= 256
    assert trained.special_tokens == {END: 328, "<|end|>": 329}
    assert trained.vocab_size == 330


def test_a_short_text_teaches_few_merges() -> None:
    assert BPE.train("abab", 1000).vocab_size == 257
    assert BPE.train("", 1000).vocab_size == 256


def test_special_tokens_are_text_until_they_are_allowed(trained: BPE) -> None:
    text = f"dogs{END}<|end|>said"
    plain = trained.encode(text)
    assert max(plain) < 328 and trained.decode(plain) == text
    some = trained.encode(text, allowed_special={END})
    assert some.count(328) == 1 and 329 not in some and trained.decode(some) == text
    every = trained.encode(text, allowed_special="all")
    assert [i for i in every if i >= 328] == [328, 329]
    assert trained.decode(every) == text
    with pytest.raises(ValueError, match=r"allowed_special is \['<x>'\].*<\|end\|>"):
        trained.encode(text, allowed_special=["<x>"])


def test_what_is_saved_comes_back(trained: BPE, tmp_path: Path) -> None:
    tiktokens = BPE(trained.tokens, None, pattern=GPT4)
    characters = CharTokenizer.train(SAMPLE)
    for tokenizer in (trained, tiktokens, characters):
        path = tmp_path / "tokenizer.json"
        tokenizer.save(path)
        for again in (type(tokenizer).load(path), load_tokenizer(path)):
            assert type(again) is type(tokenizer)
            assert again.to_json() == tokenizer.to_json()
            assert again.encode(SAMPLE) == tokenizer.encode(SAMPLE)
            assert again.vocab_size == tokenizer.vocab_size


def test_wrong_uses_are_explained(trained: BPE) -> None:
    with pytest.raises(ValueError, match="vocab_size is 256; expected 256 or more"):
        BPE.train("a", 256, special_tokens=[END])
    with pytest.raises(ValueError, match="the number 257 is empty"):
        BPE.train("a", 258, special_tokens=[END, ""])
    for names in (END, [END, END], [3]):
        with pytest.raises(ValueError, match=r"special_tokens is .*; expected a list"):
            BPE.train("a", 300, special_tokens=names)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"vocab_size is 300\.5; expected an int"):
        BPE.train("a", 300.5)  # type: ignore[arg-type]
    for call in (
        trained.encode, CharTokenizer("abc").encode, CharTokenizer.train,
        lambda text: BPE.train(text, 300),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="got a bytes; expected a str"):
            call(b"abc")
    for ids in ("ab", 65, [1.5], [[65]]):
        with pytest.raises(TypeError, match=r"decode: got .*; expected whole numbers"):
            trained.decode(ids)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no token 330; expected 0 to 329"):
        trained.decode([330])
    with pytest.raises(ValueError, match="no token -1"):
        trained.decode([-1])
    with pytest.raises(ValueError, match="surrogates"):
        trained.encode("\ud800")
    with pytest.raises(ValueError, match=r"no number for 'x', at position 2 of 3"):
        CharTokenizer("abc").encode("abx")
    with pytest.raises(ValueError, match="3 characters, of which 2 are different"):
        CharTokenizer("aba")
    with pytest.raises(ValueError, match=r"re cannot use '\(': .*"):
        BPE.train("a", 300, pattern="(")
    with pytest.raises(ValueError, match=r"no category 'Q'"):
        list(pieces(r"\p{Q}", "a"))


# ------------------------------------------------------------- files of other programs


def write_tiktoken(path: Path, tokenizer: BPE) -> None:
    lines = [base64.b64encode(k) + b" %d\n" % i for k, i in tokenizer.tokens.items()]
    path.write_bytes(b"".join(lines))


def spelled(token: bytes) -> str:
    characters = {byte: c for c, byte in formats.byte_characters().items()}
    return "".join(characters[byte] for byte in token)


def vocab_and_merges(tokenizer: BPE) -> tuple[dict[str, int], list[list[str]]]:
    vocab = {spelled(token): i for token, i in tokenizer.tokens.items()}
    names = {i: name for name, i in vocab.items()}
    return vocab, [[names[a], names[b]] for a, b in tokenizer.merges or []]


def tokenizer_json(tokenizer: BPE, **changed: Any) -> dict[str, Any]:
    """The layout of GPT-2's tokenizer.json."""
    vocab, merges = vocab_and_merges(tokenizer)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    special = [
        {"id": i, "content": name, **flags, "special": True}
        for name, i in tokenizer.special_tokens.items()
    ]
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
        "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "vocab": vocab, "merges": [" ".join(pair) for pair in merges],
    }  # fmt: skip
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": level, "decoder": level, "model": model,
    }  # fmt: skip
    model.update(changed.pop("model", {}))
    return {**whole, **changed}


def split_by(pattern: str) -> dict[str, Any]:
    """The pre_tokenizer of Llama 3's tokenizer.json."""
    split = {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
        "invert": False,
    }  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}


def write_gpt2(folder: Path, tokenizer: BPE) -> None:
    vocab, merges = vocab_and_merges(tokenizer)
    content = json.dumps({**vocab, **tokenizer.special_tokens})
    (folder / "vocab.json").write_text(content)
    lines = ["#version: 0.2", *map(" ".join, merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")


def test_tiktokens_file(trained: BPE, tmp_path: Path) -> None:
    write_tiktoken(tmp_path / "x.tiktoken", trained)
    special = {END: 400}
    read = BPE.from_tiktoken(tmp_path / "x.tiktoken", special_tokens=special)
    assert read.encode(SAMPLE) == trained.encode(SAMPLE)
    assert read.vocab_size == 401 and read.encode(END, allowed_special="all") == [400]
    with pytest.raises(ValueError, match=r"no token 390; the numbers .* have gaps"):
        read.decode([390])


def test_hugging_faces_files(trained: BPE, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write_gpt2(tmp_path, trained)
    layouts = [None, tokenizer_json(trained)]
    pairs = vocab_and_merges(trained)[1]
    layouts.append(tokenizer_json(trained, model={"merges": pairs}))
    layouts.append(tokenizer_json(trained, pre_tokenizer=split_by(GPT2)))
    for layout in layouts:
        if layout is not None:
            path.write_text(json.dumps(layout))
        read = BPE.from_huggingface(tmp_path)
        assert read.to_json() == trained.to_json()
        assert read.encode(SAMPLE) == trained.encode(SAMPLE)
    other = tokenizer_json(trained, pre_tokenizer=split_by(GPT4))
    path.write_text(json.dumps(other))
    assert BPE.from_huggingface(path).pattern == GPT4


DAMAGED = [
    (lambda c: c.pop("model"), "damaged.*KeyError: 'model'"),
    (lambda c: c["model"].update(type="WordPiece"), "the model's type is 'WordPiece'"),
    (lambda c: c["model"].update(byte_fallback=True), "byte_fallback is 'True'"),
    (lambda c: c["model"].update(dropout=0.1), "dropout is '0.1'"),
    (lambda c: c.update(normalizer={"type": "NFC"}), r"the normalizer is .*NFC"),
    (lambda c: c["pre_tokenizer"].update(add_prefix_space=True), "add_prefix_space"),
    (lambda c: c.update(pre_tokenizer=split_by("a++b(")), "re cannot use"),
    (
        lambda c: c["model"]["vocab"].update({"▁the": 999}),
        "'▁the' has the character '▁'",
    ),
    (
        lambda c: c["added_tokens"][0].update(lstrip=True),
        "lstrip of the token",
    ),
    (lambda c: c["model"]["vocab"].pop("a"), r"merge \d+ is .*two tokens"),
    (lambda c: c["model"]["vocab"].pop("~"), "1 of the 256 bytes are no tokens, 0x7e"),
    (lambda c: c["model"]["vocab"].update(b=97), "both have the number 97"),
    (lambda c: c["model"]["merges"].append("t h e"), r"merge \d+ is 't h e'; expected"),
    (lambda c: c["model"]["merges"].append("~ ~"), r"makes b'~~' .* is no token"),
]


@pytest.mark.parametrize("damage, message", DAMAGED)
def test_a_damaged_tokenizer_json(
    damage: Any, message: str, trained: BPE, tmp_path: Path
) -> None:
    content = json.loads(json.dumps(tokenizer_json(trained)))
    damage(content)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=message) as caught:
        BPE.from_huggingface(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "line, message",
    [
        (b"YQ==", "line 257: 'YQ=='; expected a token in base64"),
        (b"Y! 300", "line 257: 'Y! 300'; expected"),
        (b"YWE= x", "line 257: .*expected"),
        (b"YQ== 300", r"line 257: the token b'a' has the rank 97 already"),
        (b"YWE= 97", r"b'a' and b'aa' both have the number 97"),
        (b"YWE= -1", r"number of the token b'aa' is -1"),
    ],
)
def test_a_damaged_tiktoken_file(line: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    write_tiktoken(path, BPE.train("", 256))
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(TokenizerError, match=message) as caught:
        BPE.from_tiktoken(path)
    assert str(path) in str(caught.value)
    path.write_bytes(b"")
    with pytest.raises(TokenizerError, match="is empty"):
        BPE.from_tiktoken(path)


def test_other_files_are_named(trained: BPE, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer.json, and not both"):
        BPE.from_huggingface(tmp_path)
    write_gpt2(tmp_path, trained)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nt hh\n")
    with pytest.raises(TokenizerError, match=r"merges.txt: line 3 is 't hh'; expected"):
        BPE.from_huggingface(tmp_path)
    trained.save(path)
    with pytest.raises(TokenizerError, match="kind 'bpe'; expected 'characters'"):
        CharTokenizer.load(path)
    content = json.loads(path.read_text())
    for change, message in [
        ({"format": 2}, "has format 2; this version reads format 1"),
        ({"tokens": {"?": 1}}, "is damaged"),
        ({"merges": [[1]]}, "is damaged"),
        ({"tokenizer": "words"}, "expected one of 'characters', 'bpe'"),
    ]:
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(TokenizerError, match=message):
            load_tokenizer(path) if "tokenizer" in change else BPE.load(path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(TokenizerError, match="is no JSON file"):
        load_tokenizer(path)
    path.write_text("[]")
    with pytest.raises(TokenizerError, match="a JSON list; expected an object"):
        load_tokenizer(path)


# ------------------------------------------------------------------ other libraries


@pytest.mark.parametrize("pattern", [GPT2, GPT4])
@given(text=known)
def test_pieces_are_those_of_regex(pattern: str, text: str) -> None:
    regex = pytest.importorskip("regex", reason="the package regex is not installed")
    assert list(pieces(pattern, text)) == regex.findall(pattern, text)


@given(text=known | few)
def test_tokens_are_those_of_tiktoken(trained: BPE, text: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    theirs = tiktoken.Encoding(
        "test", pat_str=GPT2, mergeable_ranks=trained.tokens, special_tokens={END: 400}
    )
    ours = BPE(trained.tokens, None, special_tokens={END: 400})
    assert ours.encode(text) == theirs.encode_ordinary(text)
    both = text + END + text
    expected = theirs.encode(both, allowed_special="all")
    assert ours.encode(both, allowed_special="all") == expected


@pytest.mark.parametrize("whole", [False, True])
def test_tokens_are_those_of_hugging_face(
    whole: bool, trained: BPE, tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the package tokenizers is not installed"
    )
    path = tmp_path / "tokenizer.json"
    # A token that merges do not reach ("zdogs"), which `ignore_merges` takes whole.
    vocab, _ = vocab_and_merges(trained)
    changed = {"vocab": {**vocab, "zdogs": 500}, "ignore_merges": whole}
    path.write_text(json.dumps(tokenizer_json(trained, model=changed)))
    theirs, ours = tokenizers.Tokenizer.from_file(str(path)), BPE.from_huggingface(path)

    @given(text=known | few | st.just("zdogs zdogs"))
    def compare(text: str) -> None:
        assert ours.encode(text, allowed_special="all") == theirs.encode(text).ids

    compare()
    assert (500 in ours.encode("zdogs")) is whole


def test_training_is_that_of_hugging_face() -> None:
    """The same tokens, of text without spaces: these come after the letters with them,
    and before the letters with us, which decides between pairs of equal counts."""
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the package tokenizers is not installed"
    )
    text = re.sub(r"[^a-z]+", "-", SAMPLE * 2 + "the cat sat on the mat, that is it")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(
        [text],
        tokenizers.trainers.BpeTrainer(
            vocab_size=300, initial_alphabet=alphabet, show_progress=False
        ),
    )
    ours = BPE.train(text, 300)
    assert {spelled(token) for token in ours.tokens} == set(theirs.get_vocab())
