"""a10.6 in minitorch/models/generation.py: the whole text is read for each token."""


class _Writer:
    def _choose(self, ids, uniform=None):
        padding = self._padding(self.padding)
        last = self.model.features(self._tensor(self.ids), padding=padding)[:, -1]
        return self.sampling.choose(self.model.lm_head(last), uniform)
