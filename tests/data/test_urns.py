"""A text of urns: its statistics are those that it says, and its entropy is a bound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data import UrnText

SMALL = UrnText(vocab_size=5, slots=4, seed=3)


@given(
    vocab_size=st.integers(3, 9),
    slots=st.sampled_from([2, 4, 8]),
    exponent=st.floats(0, 2),
    seed=st.integers(0, 99),
)
def test_what_it_says_of_itself(vocab_size, slots, exponent, seed):
    try:
        text = UrnText(vocab_size, slots, exponent, seed)
    except ValueError:  # one of few tokens can go round in circles
        return
    counts = text.probabilities * slots
    assert (counts.sum(-1) == slots).all()
    for a, b in np.ndindex(vocab_size, vocab_size):
        found = np.bincount(text.urns[a, b], minlength=vocab_size)
        assert (counts[a, b] == found).all()
    # Frequencies of pairs are as they were, a token later.
    then = np.einsum("ab,abc->bc", text.pairs, text.probabilities)
    np.testing.assert_allclose(then, text.pairs, atol=1e-11)
    assert text.pairs.sum() == pytest.approx(1)
    sizes = [
        -sum(p * np.log(p) for p in text.probabilities[a, b] if p)
        for a, b in np.ndindex(vocab_size, vocab_size)
    ]
    assert text.entropy == pytest.approx(text.pairs.reshape(-1) @ sizes)
    assert 0 <= text.entropy <= np.log(slots) + 1e-12


def test_a_long_text_has_these_frequencies():
    ids = SMALL.draw(20_000, 9)
    assert ids.shape == (20_000, 9) and ids.dtype == np.int64
    for t in (0, 4, 7):
        found = np.zeros((5, 5))
        np.add.at(found, (ids[:, t], ids[:, t + 1]), 1 / len(ids))
        # Five deviations of a share of 20,000, which is 0.0035 each at most.
        assert np.abs(found - SMALL.pairs).max() < 0.018
    steps = np.stack([ids[:, t : t + 3] for t in range(7)]).reshape(-1, 3)
    assert (SMALL.probabilities[tuple(steps.T)] > 0).all()
    for a, b in [(0, 0), (0, 1)]:
        after = steps[(steps[:, 0] == a) & (steps[:, 1] == b), 2]
        share = np.bincount(after, minlength=5) / len(after)
        assert np.abs(share - SMALL.probabilities[a, b]).max() < 2.5 / len(after) ** 0.5


def test_keys_are_other_pieces_and_the_same_ones_again():
    first = SMALL.draw(7, 5, 0, 1)
    assert (first == UrnText(5, 4, seed=3).draw(7, 5, 0, 1)).all()
    assert (first != SMALL.draw(7, 5, 0, 2)).any()
    assert (first != SMALL.draw(7, 5)).any()
    assert UrnText(5, 4, seed=4).entropy != SMALL.entropy


@pytest.mark.parametrize(("rows", "length"), [(0, 5), (3, 2), (1, 3), (5, 11)])
def test_sizes(rows, length):
    assert SMALL.draw(rows, length).shape == (rows, length)


def test_excess_is_the_mean_divergence():
    ids = SMALL.draw(4, 6)
    true = np.full((4, 6, 5), -np.inf)
    with np.errstate(divide="ignore"):
        true[:, 1:] = np.log(SMALL.probabilities[ids[:, :-1], ids[:, 1:]])
    guess = np.log(np.full((4, 6, 5), 0.2))
    expected = [
        np.log(5) + sum(p * np.log(p) for p in SMALL.probabilities[a, b] if p)
        for row in ids
        for a, b in pairwise(row)
    ]
    assert SMALL.excess(ids, guess) == pytest.approx(np.mean(expected))
    assert SMALL.excess(ids, true) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vocab_size": 1}, "vocab_size is 1; expected 2 to 256"),
        ({"vocab_size": 257}, "expected 2 to 256"),
        ({"slots": 6}, "slots is 6; expected a power of two"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": 256}, "1 to 128"),
        ({"exponent": float("nan")}, "exponent is nan; expected 0 or more"),
        ({"exponent": -1.0}, "exponent is -1.0"),
    ],
)
def test_sizes_that_make_no_sense(options, said):
    with pytest.raises(ValueError, match=said):
        UrnText(**options)


def test_pieces_begin_with_a_pair():
    with pytest.raises(ValueError, match="of 2 tokens at least"):
        SMALL.draw(3, 1)


def test_a_text_that_goes_round_in_circles_is_refused():
    refused = 0
    for seed in range(30):
        try:
            UrnText(3, 1, 0.0, seed)
        except ValueError as error:
            refused += "goes round in circles" in str(error)
    assert refused > 0
