r"""Addresses and numbers of people, which a model should not learn by heart.

With this file one can put placeholders in their place: `mask_emails`, `mask_phones`,
`mask_ips`, or all of them, `mask_personal`.

    >>> mask_personal("write to info@example.org, or call (202) 555-0143")
    ('write to <email>, or call <phone>', 2)

Patterns miss what is written otherwise ("info at example dot org"), and take for a
number what is none: whoever publishes data looks at both. Names are not found at all.

Source: the examples of Carlini et al., "Extracting training data from large language
models", 2021, show what is learnt by heart.
"""

from __future__ import annotations

import re

EMAIL, PHONE, IP = "<email>", "<phone>", "<ip>"


def mask_emails(text: str) -> tuple[str, int]:
    """`EMAIL` in the place of addresses, and how many there were.

    An address: letters, digits and any of "._%+-", as many as there are; "@"; names of
    ASCII letters, digits and "-", each with a "." behind it, one at least; and at last
    two or more letters, behind which no letter, digit, "_" or "-" follows.
    """
    # BEGIN SOLUTION a15.4
    name = r"(?<![\w.%+-])[\w.%+-]+"  # from its first sign: else it takes squared time
    return re.subn(rf"{name}@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{{2,}}(?![\w-])", EMAIL, text)
    # END SOLUTION a15.4


def mask_phones(text: str) -> tuple[str, int]:
    """`PHONE` in the place of telephone numbers, and how many there were.

    Those of North America: three digits, also in parentheses, three and four, with one
    "-", "." or space between two groups, or nothing; "+1" or "1" may stand before them,
    with such a sign or without. Before a number there is no letter, digit, "_" or ".",
    and behind it no letter, digit or "_".
    """
    # BEGIN SOLUTION a15.4
    code, area = r"(?:\+?1[-. ]?)?", r"(?:\([0-9]{3}\)|[0-9]{3})[-. ]?"
    return re.subn(
        rf"(?<![\w.]){code}{area}[0-9]{{3}}[-. ]?[0-9]{{4}}(?!\w)", PHONE, text
    )
    # END SOLUTION a15.4


def mask_ips(text: str) -> tuple[str, int]:
    """`IP` in the place of IPv4 addresses, and how many there were.

    Four numbers from 0 to 255, without a zero before another digit, and "." between
    them. Before an address there is no letter, digit, "_" or ".", and behind it no
    letter, digit or "_", nor "." with a digit.
    """
    # BEGIN SOLUTION a15.4
    byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    return re.subn(rf"(?<![\w.]){byte}(?:\.{byte}){{3}}(?!\w|\.[0-9])", IP, text)
    # END SOLUTION a15.4


def mask_personal(text: str) -> tuple[str, int]:
    """All three, addresses of mail first, which may have numbers in them."""
    total = 0
    for mask in (mask_emails, mask_ips, mask_phones):
        text, count = mask(text)
        total += count
    return text, total
