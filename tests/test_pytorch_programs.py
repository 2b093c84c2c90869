"""What PyTorch programs that train language models call, as small programs of ours.

Each is written once for a library `lib`, and runs here and in PyTorch.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from minitorch.absent import INSTEAD

LIBS = (minitorch, torch)


@pytest.fixture(autouse=True)
def as_it_was() -> Any:
    before = [lib.get_float32_matmul_precision() for lib in LIBS]
    yield
    for lib, precision in zip(LIBS, before):
        lib.set_float32_matmul_precision(precision)


def test_functions_call_their_first_argument_as_pytorch_does() -> None:
    ours, theirs = minitorch.nn.functional, torch.nn.functional
    first, seen = {"cosine_similarity": "x1"}, 0
    first["scaled_dot_product_attention"] = "query"
    for name, fn in vars(ours).items():
        if (
            not inspect.isfunction(fn)
            or name.startswith("_")
            or name not in dir(theirs)
        ):
            continue
        wanted = first.get(name, "input")
        with suppress(ValueError):  # in C++
            found = next(iter(inspect.signature(getattr(theirs, name)).parameters))
            wanted = wanted if found == "args" else found
        assert next(iter(inspect.signature(fn).parameters)) == wanted, name
        seen += 1
    assert seen > 40
    x = minitorch.ones(1, 1, 4)
    assert ours.conv1d(input=x, weight=x).tolist() == [[[4.0]]]


# ----------------------------------------------------------------------- switches


def test_tf32_is_one_switch_with_two_names() -> None:
    """As in PyTorch, either name tells what was set by the other."""
    told: dict[str, list[Any]] = {}
    for lib in LIBS:
        switch = lib.backends.cuda.matmul
        found = told[lib.__name__] = [switch.allow_tf32]
        switch.allow_tf32 = True
        found += [lib.get_float32_matmul_precision(), switch.allow_tf32]
        lib.set_float32_matmul_precision("highest")
        found.append(switch.allow_tf32)
        lib.set_float32_matmul_precision("high")
        found.append(switch.allow_tf32)
        switch.allow_tf32 = False
        found.append(switch.allow_tf32)
    assert told["minitorch"] == told["torch"]
    with pytest.raises(TypeError, match="expected True or False"):
        minitorch.backends.cuda.matmul.allow_tf32 = "high"
    minitorch.set_float32_matmul_precision("medium")
    minitorch.backends.cuda.matmul.allow_tf32 = True  # which it is: nothing changes
    assert minitorch.get_float32_matmul_precision() == "medium"


def test_switches_without_effect_are_kept_and_others_do_not_exist() -> None:
    cudnn = minitorch.backends.cudnn
    for name in ("allow_tf32", "benchmark", "deterministic"):
        before = getattr(cudnn, name)
        setattr(cudnn, name, not before)
        assert getattr(cudnn, name) is not before
        setattr(cudnn, name, before)
    assert not cudnn.is_available()
    assert not minitorch.backends.mps.is_available()
    assert not minitorch.backends.mps.is_built()
    assert minitorch.backends.cuda.is_built() == (
        "cuda" in minitorch.available_devices()
    )
    with pytest.raises(AttributeError):
        cudnn.conv_precision = True


def test_names_that_are_imported_late() -> None:
    code = (
        "import minitorch as torch; assert torch.backends and torch.distributed; "
        "torch.profiler.profile; from minitorch.nn.parallel import "
        "DistributedDataParallel; from minitorch.utils.data.dataloader import "
        "DataLoader; assert torch.utils.data.RandomSampler; "
        "from minitorch.utils.data.sampler import Sampler; "
        "from minitorch.utils.data.dataset import IterableDataset; "
        "import minitorch.backends.cudnn as cudnn; cudnn.benchmark = True; "
        "assert torch.backends.cudnn is cudnn and cudnn.benchmark"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_summary_writer(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install -e '.[tracking]'")
    from minitorch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(tmp_path))
    writer.add_scalar("loss/train", minitorch.ones(()).item(), 1)
    writer.close()
    assert len(list(tmp_path.glob("events*"))) == 1


# ------------------------------------------------------------------------- modules


def watched(lib: Any, numbers: list[np.ndarray]) -> list[Any]:
    """What hooks on the backward pass of modules see, and what they change."""
    seen: list[Any] = []
    tell = lambda grads: [None if g is None else g.tolist() for g in grads]

    class Mix(lib.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, scale: float, b: Any) -> Any:
            return a * scale + b, a * b

    mix = Mix()
    x, y, fixed = (lib.tensor(n) for n in numbers)
    x.requires_grad, y.requires_grad = True, True

    def note(module: Any, grad_input: Any, grad_output: Any) -> None:
        seen.append((type(module).__name__, tell(grad_input), tell(grad_output)))

    def change(module: Any, grad_input: Any, grad_output: Any) -> Any:
        return tuple(None if g is None else g * 2 for g in grad_input)

    def before(module: Any, grad_output: Any) -> None:
        seen.append(("before", tell(grad_output)))

    def turn(module: Any, grad_output: Any) -> Any:
        return tuple(-g for g in grad_output)

    handles = [mix.register_full_backward_pre_hook(h) for h in (before, turn, before)]
    handles += [mix.register_full_backward_hook(h) for h in (note, change, note)]
    for kept in (6, 4, 3, 1, 0):
        for handle in handles[kept:]:
            handle.remove()
        for first, second in ((x, y), (x, fixed), (fixed, fixed * 2)):
            x.grad = y.grad = None
            p, q = mix(first, 3.0, second)
            ((p * p).sum() + q.sum() + (x * 5).sum()).backward()  # x also without mix
            seen.append(tell([x.grad, y.grad]))
    layer = lib.nn.Linear(2, 1)
    with lib.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.25)
    layer.register_full_backward_hook(note)
    layer.register_full_backward_pre_hook(before)
    layer.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 2,))
    layer(fixed.reshape(-1, 2)).sum().backward()
    with lib.no_grad():
        layer(fixed.reshape(-1, 2))
    return [*seen, tell([layer.weight.grad, layer.bias.grad])]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_hooks_on_the_backward_pass() -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.integers(-3, 4, 4).astype(np.float32) for _ in range(3)]
    assert watched(minitorch, numbers) == watched(torch, numbers)


def test_a_hook_that_returns_too_few_gradients() -> None:
    act = minitorch.nn.ReLU()
    act.register_full_backward_hook(lambda *_: (None, None))
    x = minitorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"returned 2 .* 1 positional"):
        act(x).sum().backward()
    act.register_full_backward_pre_hook(lambda *_: ())
    with pytest.raises(RuntimeError, match=r"pre_hook: .* returned 0 .* 1 output"):
        act(x).sum().backward()


def test_a_dict_of_parameters() -> None:
    found = []
    for lib in LIBS:
        table = lib.nn.ParameterDict({"b": lib.nn.Parameter(lib.ones(2))})
        table["a"] = lib.zeros(3)
        table.update({"c": lib.nn.Parameter(lib.ones(1))})
        del table["b"]
        net = lib.nn.Module()
        net.table = table
        names = [name for name, _ in net.named_parameters()]
        same = "a" in table and "b" not in table
        found.append([names, list(table), len(table), table["a"].tolist(), same])
        assert isinstance(table["a"], lib.nn.Parameter)
        assert list(net.state_dict()) == names
    assert found[0] == found[1]


def test_a_tensor_of_a_list_is_float32() -> None:
    def program(lib: Any) -> list[Any]:
        a, b = lib.Tensor([-4.0]).double(), lib.Tensor([2]).double()
        a.requires_grad = b.requires_grad = True
        c = a + b
        d = (a * b + b**3).relu() + c.relu()
        g = d * d / 2.0 + 10.0 / (d + 1)
        g.backward()
        return [g.item(), a.grad.item(), b.grad.item(), str(lib.Tensor([[1]]).dtype)]

    *mine, kind = program(minitorch)
    *theirs, their_kind = program(torch)
    assert mine == pytest.approx(theirs) and kind.split(".")[-1] in their_kind


def test_small_things_that_programs_write() -> None:
    def program(lib: Any) -> list[Any]:
        x = lib.arange(6.0).reshape(2, 3).requires_grad_()
        scores = x * lib.tensor([1.0, -1.0, 2.0])
        picked = scores[range(2), lib.tensor([0, 2])]
        (g,) = lib.autograd.grad(picked.sum(), x, only_inputs=True)
        found = [3 in x, 0.5 in x, lib.arange(3).is_cuda, lib.inf, lib.pi]
        return [*found, picked.tolist(), scores[range(1, 2)].tolist(), g.tolist()]

    assert program(minitorch) == program(torch)


def test_a_small_unet_with_an_adam_of_ones_own() -> None:
    """An image down and up again, an average of weights, a rate that plateaus lower."""

    def train(lib: Any, start: dict[str, np.ndarray]) -> list[float]:
        nn = lib.nn

        class UNet(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
                self.norm = nn.GroupNorm(2, 4)
                self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
                self.wide = nn.Upsample(scale_factor=2, mode="bilinear")
                self.out = nn.Conv2d(8, 1, 1)

            def forward(self, x: Any) -> Any:
                x = nn.functional.silu(self.norm(self.down(x)))
                return self.out(lib.cat([self.up(x), self.wide(x)], 1)).flatten(1)

        net, criterion = UNet(), nn.KLDivLoss(reduction="batchmean")
        net.load_state_dict({k: lib.tensor(v) for k, v in start.items()})
        schedule = lib.optim.lr_scheduler.ReduceLROnPlateau(
            lib.optim.SGD(net.parameters(), lr=0.05), patience=0, threshold=0.5
        )
        moments = [(lib.zeros_like(p), lib.zeros_like(p)) for p in net.parameters()]
        average = [p.detach().clone() for p in net.parameters()]
        x = (lib.arange(2 * 64.0) % 7).reshape(2, 1, 8, 8)
        wanted, found = (x.flatten(1) * 0.5).softmax(1), []
        for step in range(1, 6):
            loss = criterion(net(x).log_softmax(1), wanted)
            net.zero_grad()
            loss.backward()
            schedule.step(loss.detach())
            rate = schedule.get_last_lr()[0] / (1 - 0.9**step)
            with lib.no_grad():
                for p, (m, v), mean in zip(net.parameters(), moments, average):
                    m.lerp_(p.grad, 0.1)
                    v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                    p.addcdiv_(m, v.div(1 - 0.99**step).sqrt_().add_(1e-3), value=-rate)
                    mean.lerp_(p, 0.5)
            found += [loss.item(), rate]
        return found + [mean.sum().item() for mean in average]

    rng = np.random.default_rng(0)
    shapes = {"down.weight": (4, 1, 3, 3), "down.bias": (4,), "norm.weight": (4,)}
    shapes |= {"norm.bias": (4,), "up.weight": (4, 4, 2, 2), "up.bias": (4,)}
    shapes |= {"out.weight": (1, 8, 1, 1), "out.bias": (1,)}
    start = {k: rng.normal(0, 0.5, s).astype(np.float32) for k, s in shapes.items()}
    assert train(minitorch, start) == pytest.approx(train(torch, start), rel=1e-3)


@pytest.mark.parametrize(
    ("place", "name", "words"),
    [
        ("", "uint8", "not offered here; .* int64, int32 or int8"),
        ("linalg", "solve", "ask NumPy, without gradients"),
        ("", "slogdet", "ask NumPy, without gradients"),
        ("", "zeroes", "did you mean 'zeros'"),
        ("nn", "UpsamplingNearest2d", "not offered here; use nn.Upsample"),
        ("optim.lr_scheduler", "ReduceLROnPlateu", "mean 'ReduceLROnPlateau'"),
    ],
)
def test_what_is_absent_says_what_to_write(place: str, name: str, words: str) -> None:
    room: Any = minitorch
    for part in place.split(".") if place else ():
        room = getattr(room, part)
    with pytest.raises(AttributeError, match=f"{name}'.*{words}"):
        getattr(room, name)


def test_each_absent_name_is_absent_here_and_in_pytorch() -> None:
    for name in INSTEAD:
        for lib in LIBS:
            rooms = lib, lib.nn, lib.nn.functional, lib.optim, lib.optim.lr_scheduler
            rooms += (lib.autograd, lib.linalg)
            there = any(hasattr(room, name) for room in rooms)
            assert there == (lib is torch), name


def test_a_generator_serves_every_device() -> None:
    drawn = []
    for generator in (
        minitorch.Generator(device="cpu"),
        minitorch.Generator("simple"),
        minitorch.Generator(),
    ):
        generator.manual_seed(42)
        weights = minitorch.tensor([0.2, 0.3, 0.5])
        drawn.append(minitorch.multinomial(weights, 2, generator=generator).tolist())
    assert drawn[0] == drawn[1] == drawn[2]
    assert minitorch.Generator("simple").device == "simple"
    with pytest.raises(ValueError, match="no device 'gpu'"):
        minitorch.Generator(device="gpu")


@dataclass
class Config:
    width: int = 3
    shape: tuple[int, ...] = (1, 2)


def test_a_configuration_is_stored_as_its_fields(tmp_path: Path) -> None:
    made = {"config": Config(5), "x": minitorch.ones(2), "kind": [Config()]}
    minitorch.save(made, tmp_path / "c")
    found = minitorch.load(tmp_path / "c")
    assert Config(**found["config"]) == Config(5) and found["kind"][0]["width"] == 3
    with pytest.raises(TypeError, match="config is a type"):
        minitorch.save({"config": Config}, tmp_path / "d")


# ------------------------------------------------------------ a whole training program

WIDTH, LETTERS, LENGTH = 8, 7, 6


def model(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict(
                dict(
                    table=nn.Embedding(LETTERS, WIDTH),
                    norm=nn.LayerNorm(WIDTH),
                    layers=nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)]),
                )
            )
            self.head = nn.Linear(WIDTH, LETTERS, bias=False)
            self.parts.table.weight = self.head.weight
            before = lib.tril(lib.ones(LENGTH, LENGTH))
            self.register_buffer("before", before / before.sum(1, keepdim=True))

        def forward(self, ids: Any) -> Any:
            x = self.parts.table(ids)
            for layer in self.parts.layers:
                x = x + lib.tanh(layer(self.before @ self.parts.norm(x)))
            return self.head(x)

    return Net()


def optimizer_of(lib: Any, net: Any) -> Any:
    """Groups with and without decay, and the fused step where there is one."""
    named = {name: p for name, p in net.named_parameters() if p.requires_grad}
    groups = [
        {"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = "fused" in inspect.signature(lib.optim.AdamW).parameters
    assert fused
    return lib.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def train(
    lib: Any, net: Any, optimizer: Any, scaler: Any, ctx: Any, first: int, device: str
) -> list[float]:
    """Four steps of two small batches each, with a learning rate by hand."""
    text = np.random.default_rng(0).integers(0, LETTERS, 200).astype(np.uint16)
    losses = []
    for step in range(first, first + 4):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + step)
        for part in range(2):
            starts = lib.tensor(
                np.random.default_rng(2 * step + part).integers(0, 190, 3)
            )
            x, y = (
                lib.stack(
                    [
                        lib.from_numpy(text[i + k : i + k + LENGTH].astype(np.int64))
                        for i in starts
                    ]
                )
                for k in (0, 1)
            )
            if device == "cuda":
                x, y = (t.pin_memory().to(device, non_blocking=True) for t in (x, y))
            else:
                x, y = x.to(device), y.to(device)
            with ctx:
                logits = net(x)
                loss = lib.nn.functional.cross_entropy(
                    logits.view(-1, logits.size(-1)), y.view(-1), ignore_index=-1
                )
                loss = loss / 2
            scaler.scale(loss).backward()
            losses.append(loss.item())
        scaler.unscale_(optimizer)
        norm = lib.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        losses.append(norm.item())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    return losses


def saved_and_resumed(
    lib: Any, net: Any, device: str, path: Path, dtype: str
) -> list[float]:
    """A checkpoint in the middle, as these programs write one."""
    lib.manual_seed(1)
    lib.cuda.manual_seed(1)
    lib.cuda.manual_seed_all(1)
    lib.backends.cuda.matmul.allow_tf32 = True
    lib.backends.cudnn.allow_tf32 = True
    net.to(device)
    ctx: Any = nullcontext()
    if dtype != "float32":
        ctx = lib.amp.autocast(device_type=device, dtype=getattr(lib, dtype))
    # The first factor is far too large for float16, so that a step is skipped. Later
    # ones stay below 2**19, where the processor decides whether PyTorch overflows.
    factors = {"init_scale": 2.0**24, "backoff_factor": 2.0**-9, "growth_interval": 3}
    enabled = dtype == "float16"
    scaler = lib.amp.GradScaler(device, **factors, enabled=enabled)
    optimizer = optimizer_of(lib, net)
    losses = train(lib, net, optimizer, scaler, ctx, 0, device)
    checkpoint = {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "model_args": dict(width=WIDTH, bias=False, names=("a", None)),
        "iter_num": 4,
        "best_val_loss": lib.tensor(losses[:2]).mean(),
    }
    lib.save(checkpoint, path)
    whole = train(lib, net, optimizer, scaler, ctx, 4, device)

    read = lib.load(path, map_location=device)
    again = model(lib)
    # As nanoGPT does with what a compiled model has saved.
    state = {k.removeprefix("_orig_mod."): v for k, v in read["model"].items()}
    again.load_state_dict(state)
    if state.keys() != read["model"].keys():
        again = lib.compile(again)  # with other roundings on a GPU
    again.to(device)
    optimizer = optimizer_of(lib, again)
    optimizer.load_state_dict(read["optimizer"])
    scaler = lib.amp.GradScaler(device, enabled=enabled)
    scaler.load_state_dict(read["scaler"])
    assert read["model_args"] == checkpoint["model_args"]
    assert read["best_val_loss"] < 1e9 and f"{read['best_val_loss']:.4f}"
    resumed = train(lib, again, optimizer, scaler, ctx, read["iter_num"], device)
    assert resumed == whole
    return [*losses, *whole, scaler.get_scale()]


@pytest.mark.parametrize(
    "dtype, rtol", [("float32", 2e-4), ("bfloat16", 2e-2), ("float16", 3e-3)]
)
def test_a_program_trains_saves_and_goes_on(
    device: str, tmp_path: Path, dtype: str, rtol: float
) -> None:
    torch.manual_seed(0)
    theirs = model(torch)
    mine = model(minitorch)
    mine.load_state_dict(
        {n: minitorch.tensor(v.numpy().copy()) for n, v in theirs.state_dict().items()}
    )
    mine = minitorch.compile(mine)
    found = saved_and_resumed(minitorch, mine, device, tmp_path / "mine.pt", dtype)
    expected = saved_and_resumed(torch, theirs, "cpu", tmp_path / "t.pt", dtype)
    assert all(p.dtype is minitorch.float32 for p in mine.parameters())
    both = [np.nan_to_num(x, nan=np.inf, posinf=np.inf) for x in (found, expected)]
    np.testing.assert_allclose(*both, rtol=rtol)
