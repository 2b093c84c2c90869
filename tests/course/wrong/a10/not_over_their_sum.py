"""a10.5 in minitorch/models/generation.py: what is kept does not add up to 1."""


class Sampling:
    def probabilities(self, scores):
        scores = scores.float() / self.temperature
        shares = scores.softmax(-1)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            best = scores.topk(self.top_k, -1).values
            shares = shares.masked_fill(scores < best[:, -1:], 0.0)
        if self.top_p is not None and self.top_p < 1:
            ranked = shares.sort(-1, descending=True).values
            outside = ranked.cumsum(-1) - ranked >= self.top_p
            least = ranked.masked_fill(outside, 2.0).amin(-1, keepdim=True)
            shares = shares.masked_fill(shares < least, 0.0)
        return shares
