"""a10.3 in minitorch/models/gpt.py: heads are joined before positions are back."""

RIGHT = "self.dropout(self.c_proj(y.transpose(1, 2).flatten(2)))"
WRONG = "self.dropout(self.c_proj(y.reshape(x.shape)))"
