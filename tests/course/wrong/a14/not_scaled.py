"""a14.2 in minitorch/lora.py: alpha makes no difference to what the layer says."""

RIGHT = "narrow = F.linear(x, self.lora_A) * (self.alpha / self.rank)"
WRONG = "narrow = F.linear(x, self.lora_A)"
