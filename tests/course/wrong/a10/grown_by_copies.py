"""a10.6 in minitorch/models/cache.py: the cache is a new one at each step."""


class KVCache:
    def write(self, layer, new):
        self.memory = self.memory.clone()
        self.layers = [self.memory[i] for i in range(len(self.layers))]
        self.layers[layer].index_copy_(2, self.writing, new.to(self.memory.dtype))
        seen = new if self.fresh else self.layers[layer]
        return seen[:, : self.heads], seen[:, self.heads :]
