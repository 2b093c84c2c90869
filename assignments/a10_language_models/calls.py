"""What a10 runs in the student's process: tokens, attention, blocks, and what they
write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import gradients, raised, read, tensor
from assignments.gpts import KINDS, SIZES, model_of

Pairs = Sequence[Sequence[int]]

# ------------------------------------------------------------------ byte-pair encoding


def pair_merged(
    device: str, ids: Sequence[int], pair: Sequence[int], new: int
) -> dict[str, Any]:
    """`merge_pair`"""
    from minitorch.data.text.merging import merge_pair

    (a, b), given = pair, list(ids)
    out = list(merge_pair(given, (a, b), new))
    if given != list(ids):
        raise ValueError("merge_pair changed `ids`, which is the caller's")
    return {"out": out}


def trained(
    device: str, pieces: Sequence[str], times: Sequence[int], number: int
) -> dict[str, Any]:
    """`train_merges`: the bytes of the new tokens, and the pairs."""
    from minitorch.data.text.merging import train_merges

    counts = {piece.encode(): n for piece, n in zip(pieces, times)}
    tokens, merges = train_merges(counts, number)
    bytes_first = tokens[:256] == [bytes([i]) for i in range(256)]
    return {
        "tokens": [list(token) for token in tokens[256:]],
        "merges": [list(pair) for pair in merges],
        "bytes first": bytes_first,
    }


def merged(device: str, ids: Sequence[int], table: Pairs) -> dict[str, Any]:
    """`merge`, by a table of (a, b, rank, new)."""
    from minitorch.data.text.merging import merge

    merges = {(a, b): (rank, new) for a, b, rank, new in table}
    return {"out": list(merge(list(ids), merges))}


def _tokenizer(merges: Pairs, tokens: Pairs, ranked: bool, pattern: str) -> Any:
    from minitorch.data import BPE

    numbers = {bytes(token): 256 + i for i, token in enumerate(tokens)}
    numbers.update({bytes([i]): i for i in range(256)})
    pairs = None if ranked else [(a, b) for a, b in merges]
    return BPE(numbers, pairs, pattern=pattern)


def encoded(
    device: str, text: str, merges: Pairs, tokens: Pairs, ranked: bool, pattern: str
) -> dict[str, Any]:
    """The tokens of a text, twice, since pieces are remembered."""
    tokenizer = _tokenizer(merges, tokens, ranked, pattern)
    return {"ids": tokenizer.encode(text), "again": tokenizer.encode(text)}


def decoded(
    device: str, ids: Sequence[int], merges: Pairs, tokens: Pairs
) -> dict[str, Any]:
    """The bytes and the text of some tokens."""
    tokenizer = _tokenizer(merges, tokens, False, ".")
    found = tokenizer.decode_bytes(list(ids))
    return {"bytes": list(found), "text": tokenizer.decode(list(ids))}


def refused(
    device: str, ids: Sequence[int], merges: Pairs, tokens: Pairs
) -> dict[str, Any]:
    """What becomes of numbers that are no tokens."""
    tokenizer = _tokenizer(merges, tokens, False, ".")
    return raised(lambda: tokenizer.decode_bytes(list(ids)))


# -------------------------------------------------------------------------- attention


def weights(
    device: str,
    query: np.ndarray,
    key: np.ndarray,
    mask: np.ndarray | None,
    causal: bool,
    scale: float | None,
) -> dict[str, Any]:
    """`attention_weights`"""
    from minitorch.functions.attention import attention_weights

    q, k = tensor(device, query), tensor(device, key)
    seen = None if mask is None else tensor(device, mask)
    out = attention_weights(q, k, seen, causal, scale)
    return {"out": read(out), "query": read(q), "key": read(k)}


def attention(
    device: str,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray,
    grad: np.ndarray,
) -> dict[str, Any]:
    """`scaled_dot_product_attention` with a mask and shared heads, and gradients.

    The mask's is wanted, too, which the kernels of attention do not make.
    """
    from minitorch.nn.functional import scaled_dot_product_attention

    q, k, v = (tensor(device, x, requires_grad=True) for x in (query, key, value))
    added = tensor(device, mask, requires_grad=True)
    out = scaled_dot_product_attention(q, k, v, added, enable_gqa=True)
    return gradients(out, grad, query=q, key=k, value=v, mask=added)


def slopes(
    device: str,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    grad: np.ndarray,
    causal: bool,
    scale: float,
    kept: np.ndarray | None,
) -> dict[str, Any]:
    """`_composed_backward`"""
    from minitorch.functions.attention import _composed_backward

    g, q, k, v = (tensor(device, x) for x in (grad, query, key, value))
    of = None if kept is None else tensor(device, kept)
    found = _composed_backward(g, q, k, v, scale, causal, None, of)
    names = "grad_query", "grad_key", "grad_value"
    return {name: read(x) for name, x in zip(names, found)}


# ------------------------------------------------------------------- models and blocks


def turned(
    device: str, x: np.ndarray, angles: np.ndarray, grad: np.ndarray, again: np.ndarray
) -> dict[str, Any]:
    """`rotary`, its gradient, and the gradient of that."""
    from minitorch import autograd
    from minitorch.nn.functional import rotary

    a, g = tensor(device, x, requires_grad=True), tensor(device, grad)
    g.requires_grad = True
    cos, sin = (tensor(device, f(angles)) for f in (np.cos, np.sin))
    out = rotary(a, cos, sin)
    (first,) = autograd.grad(out, [a], g, create_graph=True)
    (second,) = autograd.grad(first, [g], tensor(device, again))
    return {"out": read(out), "grad_x": read(first), "grad_of_grad": read(second)}


def _where(device: str, model: Any, length: int) -> Any:
    """The places of `length` tokens, by the library."""
    from minitorch import arange

    return model._where(arange(length, device=device).unsqueeze(0), None, None)


def part(
    device: str, name: str, kind: str, seed: int, x: np.ndarray, grad: np.ndarray
) -> dict[str, Any]:
    """A block or a part of it, "attn" or "mlp", with the gradients of its parameters.

    It does not train: what it drops in training stays.
    """
    model = model_of(device, kind, 1, seed, 0.5).eval()
    block = model.h[0]
    layer = getattr(block, name, block)
    a = tensor(device, x, requires_grad=True)
    given = () if name == "mlp" else (_where(device, model, x.shape[1]),)
    out = layer(a, *given)
    found = gradients(out, grad, x=a)
    grads = {n: read(p.grad) for n, p in layer.named_parameters()}
    return {**found, **{f"grad of {n}": grads[n] for n in sorted(grads)}}


def dropped(
    device: str, place: str, kind: str, seed: int, x: np.ndarray
) -> dict[str, Any]:
    """What is left in training where one layer drops all, and the others nothing.

    Args:
        place: "mlp", "attn", "weights" (of attention) or "embeddings".
    """
    from minitorch import nn

    model = model_of(device, kind, 1, seed).train()
    block = model.h[0]
    owner = {"mlp": block.mlp, "embeddings": model}.get(place, block.attn)
    if place == "weights":
        owner.p = 1.0
    else:
        owner.dropout = nn.Dropout(1.0)
    if place == "embeddings":
        ids = tensor(device, np.zeros(x.shape[:2], np.int64))
        return {"out": read(model.features(ids))}
    given = () if place == "mlp" else (_where(device, model, x.shape[1]),)
    return {"out": read(owner(tensor(device, x), *given))}


def scores(
    device: str, kind: str, layers: int, seed: int, ids: np.ndarray, first: int
) -> dict[str, Any]:
    """What a model says to some tokens: at once, and the first of them before the rest.

    A cache keeps what the rest has to see of the first ones.
    """
    from minitorch import no_grad
    from minitorch.models import KVCache

    model, given = model_of(device, kind, layers, seed), tensor(device, ids)
    with no_grad():
        whole = read(model(given))
        cache = KVCache(model.config, len(ids), device=device)
        parts = given[:, :first], given[:, first:]
        found = [read(model(x, cache)) for x in parts if x.shape[1]]
    return {"at once": whole, "with a cache": np.concatenate(found, 1)}


# --------------------------------------------------------------------------- training


def windows(
    device: str, tokens: np.ndarray, size: int, indices: np.ndarray
) -> dict[str, Any]:
    """`TokenWindows.get_batch`"""
    from minitorch.data import TokenWindows

    x, y = TokenWindows(tokens, size).get_batch(indices)
    return {"x": read(x), "y": read(y), "tokens": tokens}


def rates(device: str, steps: int, most: float, warmup: int) -> dict[str, Any]:
    """The learning rates of all steps."""
    from assignments.a10_language_models.characters import learning_rate

    found = [learning_rate(n, steps, most, warmup) for n in range(steps)]
    return {"rates": [float(rate) for rate in found]}


def losses(
    device: str, kind: str, seed: int, ids: np.ndarray, targets: np.ndarray
) -> dict[str, Any]:
    """The loss of a model, and that of the same without its dropout."""
    from assignments.a10_language_models import characters

    model = model_of(device, kind, 1, seed)
    x, y = tensor(device, ids), tensor(device, targets)
    loss = model.loss(x, y)
    kept = loss.requires_grad
    found = []
    for mode in (True, False):
        trained = model_of(device, kind, 1, seed, 0.9).train(mode)
        lost = characters.validation_loss(trained, x, y)
        found.append([float(lost), trained.training])
    return {"loss": float(loss.item()), "validation": found, "recorded": kept}


def steps(
    device: str, kind: str, seed: int, ids: np.ndarray, targets: np.ndarray, lr: float
) -> dict[str, Any]:
    """The losses of two steps, and the parameters after them."""
    from assignments.a10_language_models import characters
    from minitorch import optim

    model = model_of(device, kind, 1, seed).eval()
    optimizer = optim.SGD(model.parameters(), lr=lr)
    x, y = tensor(device, ids), tensor(device, targets)
    lost = [float(characters.step(model, optimizer, x, y)) for _ in range(2)]
    after = dict(model.named_parameters())
    names = {name: read(after[name]).reshape(-1) for name in sorted(after)}
    return {"losses": lost, "training": model.training, **names}


def learned(
    device: str, tokens: np.ndarray, contexts: np.ndarray, count: int, seed: int
) -> dict[str, Any]:
    """Train on a text: the losses, and what the model expects behind others."""
    import minitorch
    from assignments.a10_language_models import characters
    from minitorch.data import TokenWindows
    from minitorch.models import GPT, GPTConfig

    minitorch.manual_seed(seed)
    size, vocab = contexts.shape[1], int(tokens.max()) + 1
    model = GPT(GPTConfig(vocab, size, n_layer=1, n_head=2, n_embd=32)).to(device)
    lost = characters.train(model, TokenWindows(tokens, size), count, seed=seed)
    with minitorch.no_grad():
        found = model.eval()(tensor(device, contexts.astype(np.int64)))
    return {"losses": [float(loss) for loss in lost], "scores": read(found)[:, -1]}


# --------------------------------------------------------------------------- sampling


def probabilities(
    device: str, scores: np.ndarray, temperature: float, k: int, p: float
) -> dict[str, Any]:
    """`Sampling.probabilities`; a k of 0 and a p of 1 are none."""
    from minitorch.models import Sampling

    sampling = Sampling(temperature, k or None, None if p == 1 else p)
    a = tensor(device, scores)
    return {"out": read(sampling.probabilities(a)), "scores": read(a)}


def best(device: str, scores: np.ndarray) -> dict[str, Any]:
    """`Sampling.choose` without numbers to draw by."""
    from minitorch.models import Sampling

    return {"out": read(Sampling(0.0).choose(tensor(device, scores), None))}


def drawn(
    device: str, scores: np.ndarray, temperature: float, k: int, seed: int, count: int
) -> dict[str, Any]:
    """`count` tokens drawn by random numbers, and some by numbers that are all 0."""
    from minitorch.models import Sampling

    sampling = Sampling(temperature, k)
    numbers = np.random.default_rng(seed).random((count, scores.size), np.float32)
    found = []
    for uniform in (numbers, np.zeros((3, scores.size), np.float32)):
        rows = np.tile(scores, (len(uniform), 1))
        made = sampling.choose(tensor(device, rows), tensor(device, uniform))
        found.append(read(made))
    return {"tokens": found[0], "at 0": found[1]}


# -------------------------------------------------------------------------- the cache


def placed(
    device: str, first: int, count: int, length: int, padding: np.ndarray | None
) -> dict[str, Any]:
    """`places` of the tokens in `count` slots from `first` on, of `length` slots."""
    from minitorch import arange
    from minitorch.models.cache import places

    keys = arange(length, device=device)
    queries = keys if count == length else keys[:count] + first
    given = None if padding is None else tensor(device, padding)
    found = places(queries, keys, given)
    mask = found.mask if found.mask is None else read(found.mask)
    return {"positions": read(found.positions), "mask": mask}


def kept(
    device: str, kind: str, counts: Sequence[int], keys: np.ndarray, back: int
) -> dict[str, Any]:
    """A cache that gets keys and values [B, 2 * kv heads, T, E] in some steps.

    Then it forgets the last `back` of them, and gets one more.
    """
    from minitorch.models import GPTConfig, KVCache

    config = GPTConfig(**SIZES, **KINDS[kind], n_layer=2)
    cache = KVCache(config, len(keys), device=device)
    places = cache.memory.raw.storage, cache.slot.raw.storage
    seen, slots, at = [], [], 0
    for count in (*counts, 1):
        if at == sum(counts):
            cache.advance(-back)
        new = tensor(device, keys[:, :, at : at + count])
        where = cache.places(count)
        for layer in (0, 1):
            found = cache.write(layer, new * (layer + 1.0))
            seen.append([read(x) for x in found])
        cache.advance(count)
        masked = None if where.mask is None else read(where.mask)
        slots.append([read(where.positions), masked, read(cache.slot)])
        at += count
    return {
        "keys": [pair[0] for pair in seen],
        "values": [pair[1] for pair in seen],
        "slots": slots,
        "memory": read(cache.memory),
        "in place": cache.memory.raw.storage is places[0],
        "slot in place": cache.slot.raw.storage is places[1],
    }


def stepwise(
    device: str, kind: str, seed: int, ids: np.ndarray, first: int, padding: Any
) -> dict[str, Any]:
    """The scores behind each token: `first` of them read at once, then one by one."""
    from minitorch import no_grad
    from minitorch.models import KVCache

    model, given = model_of(device, kind, 2, seed), tensor(device, ids)
    empty = None if padding is None else tensor(device, padding)
    cache = KVCache(model.config, len(ids), None, empty, device)
    found, at = [], 0
    with no_grad():
        for count in (first, *[1] * (ids.shape[1] - first)):
            found.append(read(model(given[:, at : at + count], cache)))
            at += count
    return {"scores": np.concatenate(found, 1)}


def written(
    device: str, kind: str, seed: int, prompts: Pairs, count: int, use_cache: bool
) -> dict[str, Any]:
    """What a model writes, and how many tokens of each text it reads for each."""
    model = model_of(device, kind, 1, seed)
    lengths, features = [], model.features

    def watched(ids: Any, *more: Any, **named: Any) -> Any:
        lengths.append(int(ids.shape[1]))
        return features(ids, *more, **named)

    model.features = watched
    rows = [list(row) for row in prompts]
    made = model.generate(rows, count, temperature=0.0, use_cache=use_cache)
    return {"tokens": made, "read": lengths}
