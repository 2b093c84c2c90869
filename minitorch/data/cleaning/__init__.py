"""With this package one can make training data of raw text.

drop_duplicates, drop_duplicate_lines      what is there twice, to the letter
normalized, shingles, jaccard, MinHash,    what is there twice, nearly
candidate_pairs, clusters, caught,
drop_near_duplicates
QualityRules, measure, drop_by_rules       what is no text, by rules
mask_personal, mask_emails, mask_phones,   addresses and numbers of people
mask_ips
TextClassifier                             what is not wanted, by examples
clean, Dropped                             one after the other, and what each dropped
"""

from __future__ import annotations

from minitorch.data.cleaning.classifier import TextClassifier
from minitorch.data.cleaning.duplicates import (
    MinHash,
    candidate_pairs,
    caught,
    clusters,
    drop_duplicate_lines,
    drop_duplicates,
    drop_near_duplicates,
    jaccard,
    normalized,
    shingles,
)
from minitorch.data.cleaning.masks import (
    mask_emails,
    mask_ips,
    mask_personal,
    mask_phones,
)
from minitorch.data.cleaning.pipeline import Cleaned, Dropped, Stage, Step, clean
from minitorch.data.cleaning.rules import (
    Measures,
    QualityRules,
    drop_by_rules,
    measure,
)
