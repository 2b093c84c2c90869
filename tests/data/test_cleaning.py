"""Cleaning of texts: each step beside its definition, written with sets and loops."""

from __future__ import annotations

import itertools
from collections import Counter
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from assignments.a15_data.crawl import cleaned
from assignments.crawls import crawl, examples, judged, pages_of
from minitorch.data import load_text
from minitorch.data.cleaning import (
    Dropped,
    MinHash,
    QualityRules,
    TextClassifier,
    candidate_pairs,
    caught,
    clean,
    clusters,
    drop_by_rules,
    drop_duplicate_lines,
    drop_duplicates,
    drop_near_duplicates,
    duplicates,
    jaccard,
    mask_emails,
    mask_ips,
    mask_personal,
    mask_phones,
    measure,
    normalized,
    shingles,
)
from minitorch.data.cleaning.classifier import orders
from minitorch.data.cleaning.duplicates import BLOCK, PRIME, digest

WORDS = [f"w{i}" for i in range(400)]
texts = st.lists(st.text("ab \n", max_size=6), max_size=8)


# ---------------------------------------------------------------------- to the letter


@given(texts)
def test_every_text_stays_once_where_it_came_first(given_texts):
    found = drop_duplicates(given_texts)
    assert [t for t in found if isinstance(t, str)] == list(dict.fromkeys(given_texts))
    for i, (before, after) in enumerate(zip(given_texts, found)):
        assert after == (Dropped("copy") if before in given_texts[:i] else before)


@given(texts, st.integers(1, 3))
def test_lines_that_are_there_too_often_go(given_texts, times):
    every = [line.strip() for text in given_texts for line in text.split("\n")]
    for before, after in zip(given_texts, drop_duplicate_lines(given_texts, times)):
        kept = [
            line
            for line in before.split("\n")
            if not line.strip() or every.count(line.strip()) <= times
        ]
        if before.strip() and not "".join(kept).strip():
            assert after == Dropped("lines that are elsewhere")
        else:
            assert after == "\n".join(kept)


def test_digests_are_the_same_in_every_process():
    assert digest("a").hex() == "40f89e395b66422f"
    assert len(digest("a", 4)) == 4 and digest("a") != digest("b")
    assert digest("\ud800")  # what surrogateescape makes of bytes


# ------------------------------------------------------------------------------ nearly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t", ""),
        ("Déjà-vu,  said ALICE!", "deja vu said alice"),
        ("don't\nstop", "don t stop"),
        ("ﬁne №1 ½", "ﬁne 1 ½"),  # NFD takes no ligatures apart
        ("Straße ΟΔΟΣ İ", "straße οδος i"),
        ("日本語、テキスト", "日本語 テキスト"),
        ("a\u0301\u0302b", "ab"),
    ],
)
def test_normalized(text, expected):
    assert normalized(text) == expected


@given(st.text())
def test_normalized_has_words_and_single_spaces_and_nothing_else(text):
    found = normalized(text)
    assert normalized(found) == found == " ".join(found.split())
    assert all(c == " " or c.isalnum() for c in found)


@given(st.lists(st.sampled_from("abc"), max_size=9), st.integers(1, 4))
def test_shingles_are_all_runs(words, n):
    runs = {
        " ".join(words[i:j])
        for i, j in itertools.combinations(range(len(words) + 1), 2)
        if j - i == n or (j - i == len(words) < n)
    }
    assert shingles(" ".join(words), n) == runs


def test_jaccard():
    assert jaccard(set(), set()) == 1 and jaccard({"a"}, set()) == 0
    assert jaccard({"a", "b", "c"}, {"b", "c", "d"}) == 0.5


@pytest.mark.parametrize("count", [0, 1, 7, BLOCK, BLOCK + 1])
def test_signatures_are_the_smallest_numbers(count):
    minhash = MinHash(3, seed=5)
    words = {f"shingle {i}" for i in range(count)}
    numbers = [int.from_bytes(digest(w), "little") % PRIME for w in words]
    expected = [
        min([(int(a) * x + int(b)) % PRIME for x in numbers], default=PRIME)
        for a, b in zip(minhash.a, minhash.b)
    ]
    found = minhash.signature(words)
    assert found.dtype == np.uint32 and found.tolist() == expected


def test_hash_functions_depend_on_the_seed_alone_and_are_of_the_family():
    one, same, other = MinHash(9, 1), MinHash(9, 1), MinHash(9, 2)
    assert (one.a == same.a).all() and (one.b == same.b).all()
    assert (one.a != other.a).any() and len(set(one.a.tolist())) == 9
    assert 1 <= one.a.min() and one.a.max() < PRIME and one.b.max() < PRIME
    assert PRIME * (PRIME - 1) < 1 << 64  # a * x + b at most
    assert all(PRIME % d for d in range(2, 1 << 16)) and PRIME < 1 << 32


@pytest.mark.parametrize("common", [0, 30, 60, 90, 100])
def test_equal_entries_estimate_the_similarity(common):
    a = {f"a{i}" for i in range(100 - common)} | set(WORDS[:common])
    b = {f"b{i}" for i in range(100 - common)} | set(WORDS[:common])
    minhash, s = MinHash(4096), jaccard(a, b)
    found = minhash.similarity(minhash.signature(a), minhash.signature(b))
    assert abs(found - s) <= 4 * (s * (1 - s) / 4096) ** 0.5


@pytest.mark.parametrize(("bands", "rows"), [(1, 1), (8, 2), (4, 5)])
def test_pairs_are_caught_as_often_as_the_formula_says(bands, rows):
    a, b = set(WORDS[:90]), set(WORDS[30:120])
    found = 0
    for seed in range(400):
        minhash = MinHash(bands * rows, seed)
        table = [minhash.signature(a), minhash.signature(b)]
        found += len(candidate_pairs(table, bands))
    expected = caught(jaccard(a, b), bands, rows)
    assert abs(found / 400 - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6), max_size=7),
    st.sampled_from([1, 2, 3, 6]),
)
def test_candidates_have_a_band_in_common(rows, bands):
    table, width = np.array(rows, np.uint32).reshape(len(rows), 6), 6 // bands
    expected = {
        (i, j)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if any(
            rows[i][k : k + width] == rows[j][k : k + width] for k in range(0, 6, width)
        )
    }
    assert candidate_pairs(table, bands) == expected


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=9))
def test_clusters_are_what_pairs_join(pairs):
    reach = np.eye(8, dtype=bool)
    for i, j in pairs:
        reach[i, j] = reach[j, i] = True
    for _ in range(8):
        reach = reach @ reach
    assert clusters(8, pairs) == [int(row.argmax()) for row in reach]


def test_clusters_of_long_chains():
    n = 3000
    assert clusters(n, [(i, i + 1) for i in reversed(range(n - 1))]) == [0] * n
    assert clusters(0, []) == []


def test_near_duplicates_are_those_that_all_pairs_would_find():
    rng = np.random.default_rng(0)
    rows = [rng.choice(WORDS, 30).tolist() for _ in range(5)]
    for row in rows[:4]:
        changed = list(row)
        changed[int(rng.integers(30))] = "other"
        rows.append(changed)
    made = [" ".join(row) for row in rows] + ["", "!"]
    sets = [shingles(text, 2) for text in made]
    alike = [
        (i, j)
        for i, j in itertools.combinations(range(len(made)), 2)
        if jaccard(sets[i], sets[j]) >= 0.6
    ]
    expected = clusters(len(made), alike)
    found = drop_near_duplicates(made, 0.6, n=2, hashes=64, bands=32)
    assert [isinstance(t, str) for t in found] == [
        f == i for i, f in enumerate(expected)
    ]
    assert len(alike) == 5
    assert [t for t in found if isinstance(t, Dropped)] == [
        Dropped("nearly a copy")
    ] * 5


def test_equal_sets_are_not_compared():
    """Else thousands of pages without a word would be, in pairs."""
    texts = ["the cat sat on the mat", "", "...", "The cat sat, on the mat!", "!"] * 9
    with mock.patch.object(duplicates, "jaccard", mock.Mock(wraps=jaccard)) as compared:
        found = drop_near_duplicates(texts, 1.0)
    assert compared.call_count == 0
    assert found == [*texts[:2], *[Dropped("nearly a copy")] * 43]


def test_what_is_near_by_chance_alone_is_compared_and_stays():
    """With bands of one row nearly all are candidates; their sets decide."""
    a, b = " ".join(WORDS[:40]), " ".join(WORDS[20:60])
    assert drop_near_duplicates([a, b], 0.9, bands=128) == [a, b]
    assert drop_near_duplicates([a, b], 0.0, bands=128)[1] == Dropped("nearly a copy")
    assert drop_near_duplicates([]) == []


# -------------------------------------------------------------------- rules and masks


def test_measures():
    text = "- The cat #1\n\n  * and THE dog...\n42 of … the…\n"
    found = measure(text)
    assert found.words == 12
    assert found.mean_length == pytest.approx(sum(map(len, text.split())) / 12)
    assert found.symbols == pytest.approx(4 / 12)
    assert found.bullets == pytest.approx(2 / 3)
    assert found.ellipses == pytest.approx(2 / 3)
    assert found.alphabetic == pytest.approx(7 / 12)
    assert found.stop_words == 3  # the, and, of
    assert set(measure("")) == set(measure(" \n ")) == {0}


def test_limits_belong_to_what_may_stay():
    text = "the " * 49 + "of"
    assert QualityRules().problems(text) == {"mean_length": 2.98}
    assert QualityRules(mean_length=(2.98, 2.98)).problems(text) == {}
    assert QualityRules(words=(51, 60)).problems(text)["words"] == 50
    found = QualityRules().problems("1 2 ...")
    assert list(found) == [
        "words", "mean_length", "symbols", "ellipses", "alphabetic", "stop_words",
    ]  # fmt: skip
    rules = QualityRules(mean_length=(0, 9))
    assert drop_by_rules([text, "x"], rules) == [text, Dropped("words")]


@pytest.mark.parametrize("text", [
    "info@example.org", "a.b+c_d%e-f@sub.example-x.co", "é1@example.org",
])  # fmt: skip
def test_addresses_of_mail(text):
    for around in ("{}", "to {}.", "<{}>", "({}),", "{}\n", "{}: {}"):
        found = around.replace("{}", "<email>"), around.count("{}")
        assert mask_emails(around.replace("{}", text)) == found


@pytest.mark.parametrize("text", [
    "info@example", "@example.org", "info@.org", "info at example.org", "a@b.c",
    "a@b.c1", "info@example.org_", "",
])  # fmt: skip
def test_no_addresses_of_mail(text):
    assert mask_emails(text) == (text, 0)


@pytest.mark.parametrize("text", [
    "2025550143", "202-555-0143", "202 555 0143", "202.555.0143", "(202) 555 0143",
    "(202)-555-0143", "(202)5550143", "+1 202 555 0143", "+12025550143",
    "1-202-555-0143", "202-5550143",
])  # fmt: skip
def test_telephone_numbers(text):
    for around in ("{}", "at {}.", "Tel:{},", "{}-{}"):
        found = around.replace("{}", "<phone>"), around.count("{}")
        assert mask_phones(around.replace("{}", text)) == found


@pytest.mark.parametrize("text", [
    "555-0143", "20255501433", "x2025550143", "2025550143x", "202--555-0143",
    "3.2025550143", "12 345 6789", "1865", "202) 555 0143",
    "202  555 0143", "_2025550143",
])  # fmt: skip
def test_no_telephone_numbers(text):
    assert mask_phones(text) == (text, 0)


@pytest.mark.parametrize("text", ["0.0.0.0", "192.0.2.1", "255.249.199.99"])
def test_addresses_of_machines(text):
    for around in ("{}", "at {}.", "{}:80", "{}, {}"):
        found = around.replace("{}", "<ip>"), around.count("{}")
        assert mask_ips(around.replace("{}", text)) == found


@pytest.mark.parametrize("text", [
    "256.0.2.1", "192.0.2", "192.0.2.1.5", "192.0.2.01", "v192.0.2.1", "192.0.2.1a",
    "192.0.2.256", "192.0..1", "1192.0.2.1", "7.192.0.2.1",
])  # fmt: skip
def test_no_addresses_of_machines(text):
    assert mask_ips(text) == (text, 0)


def test_all_masks_and_long_texts():
    text = "2025550143@example.org 192.0.2.1, 202 555 0143"
    assert mask_personal(text) == ("<email> <ip>, <phone>", 3)
    for run in ("a" * 300_000, "1" * 300_000, "1." * 150_000, "a@" + "b." * 100_000):
        assert mask_personal(run) == (run, 0)


# ------------------------------------------------------------------------- classifier


def test_features_are_hashed_runs():
    model = TextClassifier(buckets=1 << 20, n=2)
    found = model.features("The, cat SAT")
    assert found == model.features("the") + model.features("cat") + found[2:]
    assert len(found) == 5 and found[2] == model.features("sat")[0]
    assert found[1] == 2656977832 % (1 << 20)
    assert found[3] == 4044581832 % (1 << 20)
    assert model.features("") == []


def _torch_of(model):
    bag = torch.nn.EmbeddingBag(*model.table.weight.shape, mode="mean")
    head = torch.nn.Linear(*reversed(model.head.weight.shape))
    with torch.no_grad():
        for ours, theirs in (
            (model.table.weight, bag.weight),
            (model.head.weight, head.weight),
            (model.head.bias, head.bias),
        ):
            theirs.copy_(torch.from_numpy(ours.detach().numpy()))
    return bag, head


SOME = ["the cat sat", "buy now", "", "the dog", "buy a cat now now"]
CLASSES = [1, 0, 2, 1, 0]


def test_fit_does_what_pytorch_does(device):
    minitorch.manual_seed(0)
    model = TextClassifier(3, 4, buckets=50, device=device)
    bag, head = _torch_of(model)

    def scores(batch):
        found = [model.features(text) for text in batch]
        starts = np.cumsum([0, *map(len, found)])[:-1]
        ids = torch.tensor([i for one in found for i in one], dtype=torch.int64)
        return head(bag(ids, torch.from_numpy(starts)))

    np.testing.assert_allclose(
        model(SOME).detach().numpy(),
        scores(SOME).detach().numpy(),
        rtol=1e-5,
        atol=1e-6,
    )
    losses = model.fit(SOME, CLASSES, epochs=2, lr=0.1, batch=2, seed=3)
    optimizer = torch.optim.AdamW([*bag.parameters(), *head.parameters()], lr=0.1)
    expected = []
    for order in orders(5, 2, 3):
        for some in (order[:2], order[2:4], order[4:]):
            loss = torch.nn.functional.cross_entropy(
                scores([SOME[i] for i in some]),
                torch.tensor([CLASSES[i] for i in some]),
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)


def test_classes_are_learnt():
    minitorch.manual_seed(0)
    model = TextClassifier()
    model.fit(["the cat sat", "cheap, buy now"] * 4, [1, 0] * 4, epochs=40)
    high, low = model.scores(["a cat", "buy cheap"])
    assert high > 0.8 and low < 0.2
    assert model.drop_below(["a cat", "buy"]) == ["a cat", Dropped("not wanted")]
    assert model.scores([]) == [] and len(model.scores(["", "?"])) == 2
    assert orders(5, 2, 0) == orders(5, 2, 0) and sorted(orders(5, 1, 0)[0]) == [
        *range(5)
    ]


# --------------------------------------------------------------------------- pipeline


def test_what_each_step_drops_is_counted():
    given_texts = ["é a", "b", "é a", "c"]
    result = clean(given_texts, {
        "copies": drop_duplicates,
        "b": lambda some: [Dropped("is b") if t == "b" else t * 2 for t in some],
    })  # fmt: skip
    assert result.texts == ["é aé a", "cc"] and result.kept == [0, 3]
    assert [(len(s.kept), s.size) for s in result.stages] == [(4, 10), (3, 6), (2, 10)]
    assert [dict(s.reasons) for s in result.stages] == [{}, {"copy": 1}, {"is b": 1}]
    assert result.table().splitlines()[3:] == ["| copies | 3 | 6 | 1 copy |",
                                               "| b | 2 | 10 | 1 is b |"]  # fmt: skip
    assert clean([], {}).texts == []


def shorter(some):
    some.pop()  # of the list that it was given
    return some


@pytest.mark.parametrize("step", [
    lambda some: None,
    lambda some: (text for text in some),
    lambda some: [mask_personal(text) for text in some],
    lambda some: [None for _ in some],
])  # fmt: skip
def test_a_step_that_makes_no_texts_is_named(step):
    with pytest.raises(TypeError, match=r"step 'masks' made a (tuple|NoneType|gen)"):
        clean(["a"], {"masks": step})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clean(["a"], {"s": lambda some: []}), "made 0 of 1 texts"),
        (lambda: clean(["a", "b"], {"s": shorter}), "made 1 of 2 texts"),
        (lambda: drop_duplicate_lines(["a"], 0), "times is 0"),
        (lambda: shingles("a", 0), "n is 0"),
        (lambda: MinHash(0), "hashes is 0"),
        (lambda: candidate_pairs(np.zeros((2, 6)), 4), r"\(2, 6\) and bands 4"),
        (lambda: candidate_pairs([1, 2], 1), r"\(2,\) and bands 1"),
        (lambda: candidate_pairs(np.zeros((2, 0)), 1), r"\(2, 0\) and bands 1"),
        (lambda: drop_near_duplicates(["a"], 1.5), "threshold is 1.5"),
        (lambda: TextClassifier(n=0), "n is 0"),
        (lambda: TextClassifier(buckets=0), "buckets 0"),
        (lambda: TextClassifier().fit(["a"], [0], batch=0), "batch is 0"),
        (lambda: TextClassifier().fit(["a"], []), "1 texts and 0 labels"),
        (lambda: TextClassifier().fit([], []), "0 texts"),
    ],
)
def test_errors_say_what_was_given(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_crawl_is_cleaned():
    minitorch.manual_seed(0)
    pages = pages_of(load_text("alice").text)
    found = crawl(pages[15:40])
    kinds = Counter(page.kind for page in found)
    assert kinds["story"] == 25 and set(kinds) > {"copy", "near copy", "advert", "log"}
    result = cleaned([page.text for page in found], *examples(pages[:15]))
    said = judged(found, result.kept)
    assert said["recall"] >= 0.95 and said["precision"] >= 0.9
    whole = "\n".join(result.texts)
    assert "cookies" not in whole and "@" not in whole and "192.0.2" not in whole
