"""With this package one can get text, number its tokens, and feed them to a model.

CharTokenizer, BPE, load_tokenizer     text to whole numbers, and back
"""

from __future__ import annotations

from minitorch.data.text.bpe import BPE
from minitorch.data.text.tokenizer import (
    CharTokenizer,
    Tokenizer,
    TokenizerError,
    load_tokenizer,
)
