"""With this package one can get text, number its tokens, and feed them to a model.

CharTokenizer, BPE, load_tokenizer,    text to whole numbers, and back
decoded
load_text                              tinyshakespeare, or what comes with the library
write_tokens, open_tokens,             tokens in a file, and windows of them
TokenWindows
"""

from __future__ import annotations

from minitorch.data.text.bpe import BPE
from minitorch.data.text.corpus import TextData, TextFileError, load_text
from minitorch.data.text.tokenizer import (
    CharTokenizer,
    Tokenizer,
    TokenizerError,
    decoded,
    load_tokenizer,
)
from minitorch.data.text.windows import TokenWindows, open_tokens, write_tokens
