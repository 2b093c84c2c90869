"""a0.4 in minitorch/nn/module.py: forgets the children."""


class Module:
    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("train: mode must be a bool")
        self.training = mode
        return self
