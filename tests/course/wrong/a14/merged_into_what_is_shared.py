"""a14.2 in minitorch/lora.py: the embedding's weight is changed as well."""


class LoRALinear:
    def merged(self):
        with no_grad():
            self.base.weight.copy_(self.weight)
        return self.base
