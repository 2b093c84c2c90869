"""What a18 is checked with; the oracles are plain accounts, and all ways of a draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.a18_serving import calls
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.draw import Draw

ACCOUNT = "a plain account of blocks"
WAYS = "all that can be drawn"
Ops = Sequence[Sequence[Any]]

# ------------------------------------------------------------------------------ blocks


class Block:
    """Where a text's tokens lie: its key, and what published it."""

    def __init__(self) -> None:
        self.key, self.mark, self.users = None, None, 0


class Account:
    """What a pool has to say: blocks that are free, the next one to take first."""

    def __init__(self, size: int) -> None:
        self.size, self.free = size, [Block() for _ in range(size)]
        self.known: dict[str, Block] = {}

    def take(self, count: int) -> list[Block] | None:
        if count > len(self.free):
            return None
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.known.pop(block.key, None)
            block.key, block.mark, block.users = None, None, 1
        return taken

    def share(self, keys: Sequence[str]) -> list[Block]:
        found = []
        for key in keys:
            if key not in self.known:
                break
            block = self.known[key]
            if block in self.free:
                self.free.remove(block)
            block.users += 1
            found.append(block)
        return found

    def publish(self, block: Block, key: str, mark: int) -> None:
        if block.key is None and key not in self.known:
            block.key, block.mark, self.known[key] = key, mark, block

    def release(self, blocks: Sequence[Block]) -> None:
        for block in blocks[::-1]:
            block.users -= 1
            if not block.users and block.key is None:
                self.free.insert(0, block)
            elif not block.users:
                self.free.append(block)


def _applied(account: Account, texts: list[Any], op: Sequence[Any], number: int) -> Any:
    """What a call does, and says."""
    name, *given = op
    if name == "take":
        taken = account.take(given[0])
        texts += [] if taken is None else [taken]
        return "OutOfBlocksError" if taken is None else len(taken)
    if name == "share":
        texts.append(account.share(given[0]))
        return [block.mark for block in texts[-1]]
    if name == "twice":
        return "ValueError"
    if name == "publish":
        account.publish(texts[given[0]][given[1]], given[2], number)
    else:
        account.release(texts[given[0]])
        texts[given[0]] = [] if name == "release" else texts[given[0]]
    return "done"


def _pool_expected(size: int, block_size: int, ops: Ops) -> dict[str, Any]:
    account, log = Account(size), []
    texts: list[list[Block]] = []
    for number, op in enumerate(ops):
        said = _applied(account, texts, op, number)
        used = [[block.users for block in text] for text in texts]
        alone = len({id(block) for text in texts for block in text})
        free = len(account.free)
        log.append([said, used, alone, size - free, free, sorted(account.known)])
    counts = range(3 * block_size + 2)
    need = [sum(i % block_size == 0 for i in range(n)) for n in counts]
    return {"log": log, "blocks for 0, 1, ... tokens": need}


LETTERS = "abcdef"


def _ops(
    draw: Draw, size: int, count: int, names: Sequence[str], ops: list[list[Any]]
) -> list[list[Any]]:
    """Calls that can be made behind `ops`, by an account that knows what can."""
    account = Account(size)
    texts: list[list[Block]] = []
    for number in range(len(ops) + count):
        if number >= len(ops):
            ops.append(_op(draw, account, texts, draw.choice(names)))
        _applied(account, texts, ops[number], number)
    return ops


def _op(
    draw: Draw, account: Account, texts: Sequence[list[Block]], name: str
) -> list[Any]:
    """The next call: of this name, if there is a text for it."""
    have = [i for i, text in enumerate(texts) if text]
    if name == "share":
        first = draw.integer(0, 5)
        wanted = range(first, first + draw.integer(1, 4))
        return ["share", [LETTERS[i % 6] for i in wanted]]
    if have and name == "release":
        return ["release", draw.choice(have)]
    if have and name == "publish":
        i = draw.choice(have)
        at = draw.integer(0, len(texts[i]) - 1)
        return ["publish", i, at, draw.choice(LETTERS)]
    return ["take", draw.integer(0, len(account.free) + 1)]


def _plain_inputs(draw: Draw, size: int, count: int) -> Inputs:
    ops = _ops(draw, size, count, ("take", "release"), [])
    return {"size": size, "block_size": draw.choice((4, 1, 3)), "ops": ops}


def _twice_inputs(draw: Draw, size: int, count: int) -> Inputs:
    """A text gives its blocks back, and some of them once more."""
    ops = [["take", size], ["keep", 0], ["twice", 0, draw.integer(0, size - 1)]]
    return {"size": size, "block_size": 2, "ops": [*ops, ["take", size + count % 2]]}


def _keyed_inputs(draw: Draw, size: int, count: int) -> Inputs:
    """In the begin a text that is gone, and who takes its blocks one by one."""
    names = ("take", "release", "publish", "publish", "share")
    text = [["publish", 0, i, key] for i, key in enumerate(LETTERS[:size])]
    begun = [["take", size], *text[draw.choice((0, 1)) :], ["release", 0]]
    begun += [["take", 1]] * draw.integer(0, size)
    ops = _ops(draw, size, count, names, begun)
    return {"size": size, "block_size": draw.choice((4, 1, 3)), "ops": ops}


POOL_EDGES = sizes_of("size count", (1, 6), (2, 20), (6, 60), (9, 80))
POOL = {"size": (1, 6), "count": (2, 25)}
BLOCKS = (
    Check(
        *("a18.1", "take and release", calls.pool, _plain_inputs, _pool_expected),
        *(POOL, POOL_EDGES),
        oracle=ACCOUNT,
        hint="Who has a block that is taken? What is taken where there are too few? "
        "How many blocks do 0 tokens need, and one more than a block has?",
    ),
    Check(
        *("a18.1", "given back twice", calls.pool, _twice_inputs, _pool_expected),
        {"size": (1, 4), "count": (0, 1)},
        sizes_of("size count", (1, 0), (3, 1)),
        examples=4,
        oracle=ACCOUNT,
        hint="`_check` says whether a text has a block: when is it to be asked?",
    ),
    Check(
        *("a18.1", "what is forgotten first", calls.pool, _keyed_inputs),
        *(_pool_expected, POOL, POOL_EDGES),
        oracle=ACCOUNT,
        hint="Print the keys that are known after each call. Which block goes first: "
        "one without a key, a text's first, or its last? What if others still use it?",
    ),
)

# ---------------------------------------------------------------------------- prefixes


def _keys_inputs(draw: Draw, block_size: int, full: int) -> Inputs:
    """Texts that have beginnings, blocks, or sums of tokens in common."""
    most = block_size * full + draw.integer(0, block_size - 1)
    text = draw.array((most,), "int64", 0, 300).tolist()
    at = draw.integer(0, max(most - 1, 0))
    other = [t + 256 * (i == at) for i, t in enumerate(text)]
    turned = (
        text[block_size : 2 * block_size] + text[:block_size] + text[2 * block_size :]
    )
    texts = [text, other, turned, text[::-1], text[: most - 1], [*text, 7]]
    texts += [[1, 23] * most, [12, 3] * most, []]
    return {"texts": texts, "cut": draw.integer(0, most), "block_size": block_size}


def _keys_expected(texts: Ops, cut: int, block_size: int) -> dict[str, Any]:
    numbers: dict[tuple[int, ...], int] = {}
    alike = []
    for text in texts:
        ends = [n for n in range(1, len(text) + 1) if n % block_size == 0]
        alike.append([numbers.setdefault(tuple(text[:n]), len(numbers)) for n in ends])
    first = [len(text[:cut]) // block_size for text in texts]
    return {"alike": alike, "so many at first": first, "short": True}


PREFIXES = (
    Check(
        *("a18.2", "extend_keys", calls.keys, _keys_inputs, _keys_expected),
        {"block_size": (1, 4), "full": (0, 4)},
        sizes_of("block_size full", (1, 1), (1, 5), (3, 0), (4, 1), (16, 3)),
        oracle="the tokens themselves",
        hint="Two blocks of the same tokens behind other ones: may they have one key? "
        "Which blocks have none yet, and is the last one full?",
    ),
    Check(
        *("a18.2", "share and publish", calls.pool, _keyed_inputs, _pool_expected),
        *(POOL, POOL_EDGES),
        oracle=ACCOUNT,
        hint="What if the second key is not known, and the third is? Is a block that "
        "is found still free? What if two publish the same key, or one block two?",
    ),
)

# ------------------------------------------------------------------------------ tables


def _tables_inputs(draw: Draw, block_size: int, texts: int) -> Inputs:
    """Texts that end at, before and behind the end of a block; blocks in any order."""
    blocks = 4 * texts + 1
    order = np.argsort(draw.array((blocks,), "float64", 0, 1)).tolist()
    parts = []
    for _ in range(texts):
        end = draw.integer(1, 3) * block_size + draw.choice((0, 1, -1))
        first = draw.integer(0, max(end - 1, 0))
        more = draw.choice((0, 1))  # a block for what is to come
        mine = [order.pop() for _ in range(-(-max(end, 1) // block_size) + more)]
        parts.append([mine, first, max(end - first, 1)])
    pages = draw.choice((0, 1, 9))
    return {"block_size": block_size, "parts": parts, "blocks": blocks, "pages": pages}


def _tables_expected(
    block_size: int, parts: Ops, blocks: int, pages: int
) -> dict[str, Any]:
    positions, slots, rows = [], [], []
    needs = [-(-(first + count) // block_size) for _, first, count in parts]
    wide = max(pages, *needs, 0)
    for (mine, first, count), need in zip(parts, needs):
        row = mine[:need] + [0] * (wide - need)
        for position in range(first, first + count):
            positions.append(position)
            block = mine[position // block_size]
            slots.append(block * block_size + position % block_size)
            rows.append(row)
    widest = max(len(mine) for mine, _, _ in parts)
    texts = [m[:need] + [0] * (widest - need) for (m, _, _), need in zip(parts, needs)]
    found = {"positions": positions, "slots": slots, "of tokens": rows}
    found["of texts"] = texts
    return {name: np.array(value, np.int64) for name, value in found.items()}


TABLES = (
    Check(
        *("a18.3", "tables", calls.tables, _tables_inputs, _tables_expected),
        {"block_size": (1, 4), "texts": (1, 4)},
        sizes_of("block_size texts", (1, 1), (2, 1), (16, 3), (3, 7)),
        oracle="loops over tokens",
        hint="Token 5 of a text with blocks of 4: in which entry of its table, and in "
        "which slot of that block? Which blocks of a text hold no token yet?",
    ),
)

# --------------------------------------------------------------------------- who runs


class Waiting:
    """A text of the account below."""

    def __init__(self, id: int, prompt: Sequence[int], count: int) -> None:
        self.id, self.tokens, self.read = id, list(prompt), 0
        self.end, self.blocks = len(prompt) + count, []

    @property
    def left(self) -> int:
        return len(self.tokens) - self.read


class Served:
    """An engine, told plainly: lists of texts, and an account of blocks."""

    def __init__(self, blocks: int, size: int, batch: int, budget: int) -> None:
        self.account, self.size = Account(blocks), size
        self.batch, self.budget = batch, budget
        self.running: list[Waiting] = []
        self.waiting: list[Waiting] = []
        names = "preemptions", "prefix_tokens", "prefix_hit_tokens"
        self.counts = dict.fromkeys(names, 0)

    def need(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def back(self, text: Waiting) -> None:
        self.account.release(text.blocks)
        text.blocks, text.read = [], 0

    def step(self) -> list[tuple[Waiting, int]]:
        share = {t.id: 1 for t in self.running if t.left == 1}
        rest = self.budget - len(share)
        for text in self.running:
            if text.left > 1:
                share[text.id] = min(text.left, rest)
                rest -= share[text.id]
        chunks, sent_back = [], False
        for text in list(self.running):
            while text in self.running and share[text.id]:
                lacks = self.need(text.read + share[text.id]) - len(text.blocks)
                if lacks <= len(self.account.free):
                    text.blocks += self.account.take(lacks) or [] if lacks > 0 else []
                    chunks.append((text, share[text.id]))
                    break
                last = self.running.pop()
                self.back(last)
                self.waiting.insert(0, last)
                sent_back = True
                self.counts["preemptions"] += 1
        return chunks + ([] if sent_back else self.admitted(rest))

    def admitted(self, rest: int) -> list[tuple[Waiting, int]]:
        found = []
        while self.waiting and len(self.running) < self.batch and rest > 0:
            text = self.waiting[0]
            ends = range(self.size, len(text.tokens), self.size)
            keys = [str(text.tokens[:end]) for end in ends]
            text.blocks = self.account.share(keys)
            more = self.account.take(self.need(len(text.tokens)) - len(text.blocks))
            if more is None:
                self.back(text)
                break
            text.read = len(text.blocks) * self.size
            text.blocks = text.blocks + more
            self.counts["prefix_tokens"] += len(text.tokens)
            self.counts["prefix_hit_tokens"] += text.read
            self.running.append(self.waiting.pop(0))
            count = min(text.left, rest)
            rest -= count
            found.append((text, count))
        return found

    def write(self, chunks: Sequence[tuple[Waiting, int]]) -> list[tuple[int, int]]:
        """What a step does behind the plan, in its order: one token before more."""
        chunks = sorted(chunks, key=lambda chunk: chunk[1] > 1)
        ready = [text for text, count in chunks if text.left == count]
        for text, count in chunks:
            for end in range(text.read + 1, text.read + count + 1):
                if end % self.size == 0:
                    block = text.blocks[end // self.size - 1]
                    self.account.publish(block, str(text.tokens[:end]), 0)
            text.read += count
        made = []
        for text in ready:
            made.append((text.id, calls.token(text.id, len(text.tokens))))
            text.tokens.append(made[-1][1])
            if len(text.tokens) == text.end:
                self.running.remove(text)
                self.back(text)
        return made


def _steps_expected(
    blocks: int, block_size: int, batch: int, budget: int, texts: Ops
) -> dict[str, Any]:
    served, rest = Served(blocks, block_size, batch, budget), list(texts)
    log: list[Any] = []
    written: dict[str, list[int]] = {}
    for now in range(300):
        while rest and rest[0][0] <= now:
            _, prompt, count = rest.pop(0)
            id = len(texts) - len(rest)
            served.waiting.append(Waiting(id, prompt, count))
        before = {text.id for text in served.running}
        chunks = served.step()
        log.append([
            sorted([text.id, text.read, count] for text, count in chunks),
            True,
            [text.id for text in served.running],
            [text.id for text in served.waiting],
            blocks - len(served.account.free),
            [len(text.blocks) for text in served.running],
            len({text.id for text in served.running} - before),
        ])  # fmt: skip
        for id, new in served.write(chunks):
            written.setdefault(str(id), []).append(new)
        if not rest and not served.running and not served.waiting:
            break
    end = {"steps": log, "written": written, "used in the end": 0}
    return {**end, **served.counts}


def _requests(draw: Draw, texts: int, longest: int, alike: bool) -> list[list[Any]]:
    """When they come, their prompts, which may begin alike, and what is wanted."""
    made, now = [], 0
    for number in range(texts):
        size = draw.integer(1, longest)
        first = 0 if alike and draw.choice((True, True, False)) else number
        prompt = [(first + i * (i + first)) % 16 for i in range(size)]
        made.append([now, prompt, draw.integer(1, 7)])
        now += draw.choice((0, 1, 0, 4))
    return made


def _enough_inputs(draw: Draw, texts: int, size: int) -> Inputs:
    batch = draw.integer(1, 4)
    return {
        "blocks": 80,
        "block_size": size,
        "batch": batch,
        "budget": batch + draw.choice((0, 1, 3, 50)),
        "texts": _requests(draw, texts, 12, False),
    }


def _few_inputs(draw: Draw, texts: int, size: int, alike: bool = False) -> Inputs:
    requests = _requests(draw, texts, 9, alike)
    need = max(-(-(len(prompt) + n - 1) // size) for _, prompt, n in requests)
    batch = draw.integer(2, 4)
    return {
        "blocks": need + draw.integer(0, 2),
        "block_size": size,
        "batch": batch,
        "budget": batch + draw.choice((50, 4, 1)),
        "texts": requests,
    }


def _alike_inputs(draw: Draw, texts: int, size: int) -> Inputs:
    return _few_inputs(draw, texts, size, True)


def _steps_check(name: str, inputs: Any, hint: str) -> Check:
    return Check(
        *("a18.4", name, calls.steps, inputs, _steps_expected),
        {"texts": (1, 5), "size": (1, 4)},
        sizes_of("texts size", (1, 1), (1, 4), (2, 2), (5, 1), (6, 4), (7, 3)),
        oracle=ACCOUNT,
        hint=hint,
    )


SCHEDULE = (
    _steps_check(
        "enough blocks",
        _enough_inputs,
        "Count the tokens of a step: at most how many? Does each text that is being "
        "written get one, whatever prompts there are? Who comes in, and when?",
    ),
    _steps_check(
        "few blocks",
        _few_inputs,
        "No block is free: who gives back, and where does it wait? Does anybody come "
        "in at that step? Does a text that came in have blocks for all its tokens?",
    ),
    _steps_check(
        "texts that begin alike",
        _alike_inputs,
        "How many full blocks may a text find, if it has to read its last token? What "
        "becomes of these, if there are too few others for the rest?",
    ),
)

# ----------------------------------------------------------------------------- guesses

# Thresholds p / q of such shares are multiples of 1 / PARTS[n].
PARTS = {1: 1, 2: 2, 3: 6, 4: 12, 5: 60}


def _shares(draw: Draw, rows: int, vocab: int, parts: int) -> np.ndarray:
    """[rows, vocab], of multiples of 1 / parts; some may be 0."""
    made = np.zeros((rows, vocab))
    for row in made:
        for _ in range(parts):
            row[draw.integer(0, vocab - 1)] += 1 / parts
    return made


def _drawn_inputs(draw: Draw, vocab: int, parts: int) -> Inputs:
    weights = _shares(draw, 1, vocab, parts)[0] * parts
    return {"weights": weights * draw.choice((1.0, 0.25)), "grid": PARTS[parts]}


def _drawn_expected(weights: np.ndarray, grid: int) -> dict[str, Any]:
    return {"shares": weights / weights.sum()}


def _judged_inputs(draw: Draw, n: int, vocab: int) -> Inputs:
    parts = draw.choice((3, 2, 4, 5)) if n == 1 else draw.choice((2, 3))
    small = _shares(draw, n, vocab, parts)
    return {
        "small": small,
        "large": _shares(draw, n + 1, vocab, parts),
        "grid": PARTS[parts],
    }


def _judged_expected(small: np.ndarray, large: np.ndarray, grid: int) -> dict[str, Any]:
    n = len(small)
    shares = np.ones(())
    for row in large:
        shares = np.multiply.outer(shares, row)
    kept = [float(np.minimum(q, p).sum()) for q, p in zip(small, large)]
    lengths, still = np.zeros(n + 2), 1.0
    for i, share in enumerate(kept, 1):
        lengths[i], still = still * (1 - share), still * share
    lengths[n + 1] = still
    return {"shares": shares, "lengths": lengths}


def _written_inputs(draw: Draw, count: int, ahead: int) -> Inputs:
    """Of halves: what follows each of two tokens; sometimes both know the same."""
    small, large = (_shares(draw, 2, 2, 2) for _ in range(2))
    if draw.choice((False, True)):
        large = np.eye(2)[::-1].copy() if ahead > 1 else large
        small = large.copy()
    return {
        "small": small, "large": large, "count": count, "ahead": ahead, "grid": 2,
    }  # fmt: skip


def _written_expected(
    small: np.ndarray, large: np.ndarray, count: int, ahead: int, grid: int
) -> dict[str, Any]:
    shares = np.zeros((2,) * count)
    for text in np.ndindex(*shares.shape):
        pairs = zip((0, *text), text)
        shares[text] = np.prod([large[before, after] for before, after in pairs])
    return {
        "shares": shares,
        "steps of the large model": _reads(small, large, 0, count, ahead),
        "no more": 1.0,
    }


def _reads(
    small: np.ndarray, large: np.ndarray, last: int, count: int, ahead: int
) -> float:
    """How many steps of the large model `count` tokens take on average."""
    if count <= 0:
        return 0.0
    total, here = 1.0, {last: 1.0}  # the chance that all so far stayed, by the newest
    for done in range(1, ahead + 2):
        after: dict[int, float] = {}
        for token, chance in here.items():
            p = large[token]
            q = small[token] if done <= ahead else np.zeros(2)
            for new in range(2):
                stays = min(p[new], q[new])
                after[new] = after.get(new, 0.0) + chance * stays
                goes = chance * (p[new] - stays)
                if goes > 0:
                    total += goes * _reads(small, large, new, count - done, ahead)
        here = after
    return total


GUESSES = (
    Check(
        *("a18.5", "draw", calls.drawn, _drawn_inputs, _drawn_expected),
        {"vocab": (1, 5), "parts": (1, 5)},
        sizes_of("vocab parts", (1, 1), (2, 2), (5, 4)),
        tolerance=1e-9,
        oracle=WAYS,
        hint="Lay the weights one behind the other: which one lies at a share u of the "
        "whole? Weights need not have the sum 1, and one may be 0.",
    ),
    Check(
        *("a18.5", "judge", calls.judged, _judged_inputs, _judged_expected),
        {"n": (1, 2), "vocab": (1, 3)},
        sizes_of("n vocab", (1, 1), (1, 2), (1, 3), (2, 2)),
        tolerance=1e-9,
        examples=12,
        oracle=WAYS,
        hint="A guess with q = 1/2 and p = 1/4: how often does it stay? For one that "
        "goes, what is drawn instead, so that all together have the shares p?",
    ),
    Check(
        *("a18.5", "speculate", calls.written, _written_inputs, _written_expected),
        {"count": (1, 3), "ahead": (1, 2)},
        sizes_of("count ahead", (1, 1), (3, 1), (3, 2), (3, 2), (3, 2)),
        tolerance=1e-9,
        examples=10,
        oracle=WAYS,
        hint="Behind which text does a guess stand, the one before the guesses or with "
        "them? Which rows of what the large model expects judge n guesses?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = BLOCKS + PREFIXES + TABLES + SCHEDULE + GUESSES
