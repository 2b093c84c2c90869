"""Several GPUs in one process, and a process for each.

In the simulator two GPUs are made up (MINITORCH_SIMULATED_GPUS, tests/conftest.py); on
a machine with two GPUs the same tests run on those, and what only real ones have, as
memory, is tested as well:

    pytest -m cuda tests/cuda/test_devices.py

`tests/cuda/test_driver.py` looks at the calls of the driver, without a GPU.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import LAYOUTS, SIMULATED, array_of, make, numbers
from minitorch import cuda, dtypes, nn, optim, profiler
from minitorch.backend import get_backend
from minitorch.nn import functional as F
from minitorch.tensor_data import TensorData

pytest.importorskip("numba_cuda")
from cuda_ops.runtime import device as runtime

FOUND = cuda.device_count()
pytestmark = pytest.mark.skipif(
    FOUND < 2, reason=f"needs two GPUs, here {'is one' if FOUND else 'is none'}"
)
real = pytest.mark.skipif(SIMULATED, reason="needs GPUs, not the simulator")
NAMES = ("cuda:0", "cuda:1")


@pytest.fixture(autouse=True)
def the_first_is_current() -> Iterator[None]:
    yield
    cuda.set_device(0)


def on_both(fn: Callable[[str], Any]) -> list[Any]:
    return [fn(name) for name in NAMES]


# --------------------------------------------------------------------------- names


def test_names() -> None:
    first, second = minitorch.device("cuda:0"), minitorch.device("cuda", 1)
    assert (second.type, second.index, str(second)) == ("cuda", 1, "cuda:1")
    assert repr(second) == "device(type='cuda', index=1)"
    assert repr(minitorch.device("cuda")) == "device(type='cuda')"
    assert first != second and second == "cuda:1" and "cuda:1" == second
    assert first == "cuda" == first and second != "cuda"
    assert len({first, second, minitorch.device("cuda:1")}) == 2
    assert pickle.loads(pickle.dumps(second)) == second
    with cuda.device(1):
        assert second == "cuda" == minitorch.device("cuda") and first != "cuda"


def test_a_tensor_says_where_it_is() -> None:
    x = minitorch.ones(2, device="cuda:1")
    assert x.device == "cuda:1" and x.device.type == "cuda" and x.device.index == 1
    assert "device='cuda:1'" in repr(x) and x.raw.device == "cuda:1"
    assert (x + x).device == x.relu().sum().device == x.new_zeros(3).device == "cuda:1"
    assert minitorch.zeros_like(x).device == minitorch.rand_like(x).device == x.device
    assert minitorch.ones(2, device="cuda").device == "cuda:0"


def test_what_is_no_gpu() -> None:
    for wrong in ("cuda:x", "cuda:"):
        with pytest.raises(ValueError, match=f"got '{wrong}'; expected a name"):
            minitorch.ones(2, device=wrong)
    with pytest.raises(ValueError, match=r"no 'cuda:77'; there is 'cuda:0', 'cuda:1'"):
        minitorch.ones(2, device="cuda:77")
    for wrong in (77, -1, "cuda:77"):
        with pytest.raises(ValueError, match=r"there is no 'cuda:.* there is 'cuda:0'"):
            cuda.set_device(wrong)
    with pytest.raises(ValueError, match="'cpu'; expected a GPU"):
        cuda.memory_allocated("cpu")


# --------------------------------------------------------------- the current device


def test_the_current_device() -> None:
    assert cuda.current_device() == 0
    with cuda.device("cuda:1"):
        assert cuda.current_device() == 1
        assert minitorch.ones(2, device="cuda").device.index == 1
        with cuda.device(0):
            assert minitorch.ones(2, device="cuda").device.index == 0
        with cuda.device(None):
            assert cuda.current_device() == 1
        assert minitorch.ones(2).cuda().device.index == 1
    assert cuda.current_device() == 0
    cuda.set_device(minitorch.device("cuda:1"))
    assert minitorch.ones(2).to("cuda").device == "cuda:1"
    assert (
        minitorch.ones(2).cuda(0).device == minitorch.ones(2).to(0).device == "cuda:0"
    )


def test_each_thread_has_a_current_device() -> None:
    found: dict[int, Any] = {}
    barrier = threading.Barrier(3)

    def work(index: int) -> None:
        cuda.set_device(index)
        barrier.wait()
        x = minitorch.full((500,), float(index), device="cuda")
        for _ in range(20):
            x = x + 1.0
        barrier.wait()
        found[index] = cuda.current_device(), str(x.device), x.numpy().tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    barrier.wait()
    assert cuda.current_device() == 0
    barrier.wait()
    for thread in threads:
        thread.join()
    assert found == {i: (i, f"cuda:{i}", [i + 20.0] * 500) for i in range(2)}


def test_an_error_leaves_the_current_device() -> None:
    x = minitorch.ones(3, 4, device="cuda:1")
    with pytest.raises(ValueError, match="matmul"):
        x @ x
    with pytest.raises(RuntimeError), cuda.device(1):
        raise RuntimeError
    assert cuda.current_device() == 0


def test_properties() -> None:
    for index in range(2):
        found = cuda.get_device_properties(index)
        assert cuda.get_device_name(f"cuda:{index}") == found.name
        assert cuda.get_device_capability(index) == (found.major, found.minor)


# -------------------------------------------------------------------------- copies


@pytest.mark.parametrize(
    ("layout", "shape", "dtype"),
    [
        *[(layout, (7, 5), dtypes.float32) for layout in LAYOUTS],
        *[("contiguous", (7, 5), dtype) for dtype in dtypes.ALL],
        *[("contiguous", n, dtypes.float32) for n in ((), (0, 3), (1,), (33, 1, 129))],
    ],
)
def test_copies_between_gpus(layout: str, shape: Any, dtype: Any) -> None:
    a = numbers(shape, dtype, layout=layout)
    for source, target in (NAMES, NAMES[::-1]):
        x = minitorch.Tensor(make(a, source, layout))
        y = x.to(target)
        assert y.device == target and y.dtype is dtype and y.is_contiguous()
        np.testing.assert_array_equal(y.numpy(), a)
        np.testing.assert_array_equal(y.to(source).numpy(), x.numpy())
        z = minitorch.zeros(*shape, dtype=dtype, device=target)
        np.testing.assert_array_equal(z.copy_(x).numpy(), a)


def test_a_copy_is_behind_what_made_the_numbers() -> None:
    """And what comes next on either GPU is behind the copy, also on other streams."""
    n = 1000 if SIMULATED else 1 << 24
    x = minitorch.zeros(n, device="cuda:0")
    for _ in range(3 if SIMULATED else 50):
        x = x + 1.0
    y = x.to("cuda:1")
    x.zero_()
    with cuda.stream(cuda.Stream(1)):
        z = minitorch.ones(n, device="cuda:0").to("cuda")
        assert z.device == "cuda:1" and z.sum().item() == n
    assert y.sum().item() == n * (3 if SIMULATED else 50) and x.sum().item() == 0


def test_gradients_go_back_to_their_gpu() -> None:
    x = minitorch.ones(3, device="cuda:0", requires_grad=True)
    y = (x * 2).to("cuda:1") * 5
    y.sum().backward()
    assert x.grad.device == "cuda:0" and x.grad.tolist() == [10.0] * 3
    assert cuda.current_device() == 0


def test_numbers_without_memory() -> None:
    x = minitorch.tensor(3.5, device="cuda:1")
    assert x.to("cuda:0").item() == x.to("cpu").item() == x.item() == 3.5
    assert (x + x.to("cuda:0").to("cuda:1")).item() == 7.0


# -------------------------------------------------------------- operations on several


def test_two_devices_are_an_error_that_names_both() -> None:
    x, y = on_both(lambda name: minitorch.ones(3, 3, device=name))
    index = minitorch.zeros(3, dtype=minitorch.int64, device="cuda:1")
    for use in (
        lambda: x + y,
        lambda: x @ y,
        lambda: minitorch.cat([x, y]),
        lambda: minitorch.where(x > 0, x, y),
        lambda: F.linear(x, y),
        lambda: F.layer_norm(x, (3,), y[0], y[0]),
        lambda: F.cross_entropy(x, index),
        lambda: x.index_select(0, index),
    ):
        with pytest.raises(RuntimeError, match="'cuda:0' and the other on 'cuda:1'"):
            use()


def results(name: str) -> list[bytes]:
    """What many kernels make of the same numbers."""
    minitorch.manual_seed(3)
    x = minitorch.tensor(numbers((6, 8)), device=name, requires_grad=True)
    w = minitorch.tensor(numbers((8, 5), seed=1), device=name)
    images = minitorch.tensor(numbers((2, 3, 6, 6)), device=name)
    filters = minitorch.tensor(numbers((4, 3, 3, 3), seed=2), device=name)
    y = F.dropout(F.gelu(x @ w), 0.3)
    loss = F.cross_entropy(y, minitorch.tensor([0, 1, 2, 3, 4, 0], device=name))
    loss.backward()
    out = [y, loss, x.grad, F.softmax(x, 1), F.layer_norm(x, (8,)), x.sort(1)[0]]
    out += [F.conv2d(images, filters), F.max_pool2d(images, 2), x.cumsum(1), x[1:, 3]]
    out += [minitorch.randn(50, device=name), x.argmax(1), x[x > 0]]
    assert all(t.device == name for t in out)
    return [t.detach().numpy().tobytes() for t in out]


def test_kernels_make_the_same_on_both() -> None:
    first, second = on_both(results)
    assert first == second and first == results("cuda:0")


def train(name: str, make_optimizer: Callable[..., Any]) -> list[bytes]:
    minitorch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)
    ).to(name)
    optimizer = make_optimizer(model.parameters())
    x = minitorch.tensor(numbers((12, 6)), device=name)
    y = minitorch.tensor(np.arange(12) % 3, device=name)
    losses = []
    for _ in range(2 if SIMULATED else 20):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    tensors = [*losses, *model.parameters()]
    tensors += [
        s for t in optimizer.state.values() for s in t.values() if hasattr(s, "raw")
    ]
    assert all(t.device == name for t in tensors)
    return [t.detach().numpy().tobytes() for t in tensors]


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda p: optim.SGD(p, 0.1),
        lambda p: optim.SGD(p, 0.1, momentum=0.9),
        lambda p: optim.AdamW(p, 0.01),
    ],
    ids=["sgd", "momentum", "adamw"],
)
def test_training_is_the_same_to_the_bit(make_optimizer: Any) -> None:
    first, second = on_both(lambda name: train(name, make_optimizer))
    assert first == second
    with cuda.device(1):
        assert first == train("cuda:0", make_optimizer)


def test_one_model_on_two_gpus() -> None:
    """Half of the layers on each, and one optimizer for all."""
    lower, upper = nn.Linear(4, 6).to("cuda:0"), nn.Linear(6, 2).to("cuda:1")
    together = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).to("cuda:0")
    together.load_state_dict(nn.Sequential(lower, upper).state_dict())
    x = minitorch.tensor(numbers((5, 4)), device="cuda:0")
    for model in (lambda x: upper(lower(x).to("cuda:1")), together):
        model(x).square().sum().backward()
    pairs = list(zip([*lower.parameters(), *upper.parameters()], together.parameters()))
    for one in ([p for p, _ in pairs], [p for _, p in pairs]):
        optim.AdamW(one, 0.1).step()
    for a, b in pairs:
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
        np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_a_module_and_a_checkpoint_move(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to("cuda:1")
    assert {str(t.device) for t in model.state_dict().values()} == {"cuda:1"}
    minitorch.save(model.state_dict(), tmp_path / "model")
    for place in ("cuda:0", minitorch.device("cuda", 1), "cpu"):
        state = minitorch.load(tmp_path / "model", map_location=place)
        assert {t.device for t in state.values()} == {minitorch.device(place)}
        again = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).cuda(1)
        again.load_state_dict(state)
        assert again[0].weight.device == "cuda:1"
        np.testing.assert_array_equal(
            again[0].weight.detach().numpy(), model[0].weight.detach().numpy()
        )
    x = pickle.loads(pickle.dumps(minitorch.ones(2, device="cuda:1")))
    assert x.device == "cuda:1"


@pytest.mark.parametrize("seed", [cuda.manual_seed, cuda.manual_seed_all])
def test_random_numbers_do_not_depend_on_the_gpu(seed: Any) -> None:
    def draw(name: str) -> list[float]:
        seed(7)
        return minitorch.rand(9, device=name).tolist()

    first, second = on_both(draw)
    assert first == second
    seed(7)
    half = minitorch.rand(4, device="cuda:0").tolist()  # the sequence goes on elsewhere
    assert half + minitorch.rand(4, device="cuda:1").tolist() == first[:8]


@pytest.mark.parametrize("current", [0, 1])
def test_a_bad_index_is_told_by_its_gpu(current: int) -> None:
    table = minitorch.zeros(4, 2, device="cuda:1")
    index = minitorch.tensor([0, 9], device="cuda:1")
    with cuda.device(current):
        with pytest.raises(IndexError, match="index_select: index 9 is outside"):
            rows = table.index_select(0, index)
            cuda.synchronize(0)  # knows nothing of it
            rows.numpy()
        assert table.sum().item() == 0
        assert minitorch.ones(3, device="cuda:0").sum().item() == 3


def test_streams_and_events_of_each_gpu() -> None:
    streams = [cuda.Stream(), cuda.Stream("cuda:1")]
    assert [s.device for s in streams] == list(NAMES)
    events = [cuda.Event(enable_timing=True) for _ in range(4)]
    for name, stream, start, end in zip(NAMES, streams, events[:2], events[2:]):
        x = minitorch.ones(1000, device=name)
        stream.wait_stream(cuda.current_stream(name))
        with cuda.stream(stream):
            assert cuda.current_device() == stream.device.index
            assert cuda.current_stream().handle == stream.handle
            start.record()
            with cuda.device(1 - stream.device.index):
                assert cuda.current_stream().handle is None
                assert cuda.current_stream(name).handle == stream.handle
            y = x + x
            end.record()
        assert cuda.current_device() == 0 and start.device == end.device == name
        end.synchronize()
        assert end.query() and start.elapsed_time(end) >= 0
        assert y.sum().item() == 2000
    with pytest.raises(ValueError, match="on one GPU"):
        events[0].elapsed_time(events[1])
    with pytest.raises(ValueError, match="recorded on 'cuda:0', and the stream is of"):
        events[0].record(streams[1])
    streams[1].wait_event(events[0])  # of the other GPU
    for stream in streams:
        stream.synchronize()
    assert cuda.default_stream(1).device == "cuda:1"


def test_graphs_of_each_gpu() -> None:
    def captured(name: str) -> tuple[Any, Any, Any]:
        with cuda.device(name):
            x = minitorch.ones(10, device="cuda")
            x * 2 + 1
            minitorch.manual_seed(5)
            g = cuda.CUDAGraph()
            with cuda.graph(g):
                y = F.dropout(x * 2 + 1, 0.5)
        return x, g, y

    made, seen = on_both(captured), []
    for x, g, y in made:
        assert y.device == x.device
        minitorch.manual_seed(5)
        g.replay()
        seen.append(y.numpy().tolist())
    assert seen[0] == seen[1] and set(seen[0]) <= {0.0, 6.0}
    assert cuda.current_device() == 0


def test_a_graph_is_of_one_gpu() -> None:
    from cuda_ops.runtime.device import CaptureError

    x, y = on_both(lambda name: minitorch.ones(4, device=name))
    with pytest.raises(CaptureError, match=r"a graph of 'cuda:0'.*graph of its own"):
        with cuda.graph(cuda.CUDAGraph()):
            y + 1
    assert (y + 1).tolist() == [2.0] * 4 and (x + 1).tolist() == [2.0] * 4
    pool = cuda.graph_pool_handle()
    with cuda.device(1), pytest.raises(ValueError, match="another GPU than 'cuda:1'"):
        with cuda.graph(cuda.CUDAGraph(), pool=pool):
            y + 1


@pytest.mark.parametrize("dtype", [minitorch.float32, minitorch.bfloat16])
def test_a_graphed_step_on_the_other_gpu(dtype: Any) -> None:
    def losses(name: str, graphed: bool) -> list[float]:
        minitorch.manual_seed(2)
        model = nn.Linear(4, 3).to(name).to(dtype)
        optimizer = optim.AdamW(model.parameters(), 0.1)

        def step(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = cuda.make_graphed_step(step) if graphed else step
        inputs = [
            minitorch.tensor(numbers((6, 4), seed=i), device=name).to(dtype)
            for i in range(5)
        ]
        y = minitorch.tensor([0, 1, 2, 0, 1, 2], device=name)
        found = [run(x, y).item() for x in inputs[:3]]
        with cuda.device(1):
            return found + [run(x, y).item() for x in inputs[3:]]

    expected = losses("cuda:0", False)
    assert expected == losses("cuda:0", True) == losses("cuda:1", True)


def test_pinned_memory_serves_both() -> None:
    a = numbers((100, 7))
    x = minitorch.tensor(a).pin_memory()
    y = [x.to(name, non_blocking=True) for name in NAMES]
    back = [t.to("cpu", non_blocking=True) for t in y]
    for name in NAMES:
        cuda.synchronize(name)
    for t in back:
        np.testing.assert_array_equal(t.numpy(), a)


def test_the_profiler_sees_both() -> None:
    x, y = on_both(lambda name: minitorch.ones(10, device=name))
    with profiler.profile() as prof:
        x + x
        z = y + y
    assert z.device == "cuda:1" and z.tolist() == [2.0] * 10
    calls = {a.key: a.count for a in prof.key_averages()}
    assert calls["zip"] == 2
    if not SIMULATED:
        assert {s.row for s in prof.events() if s.kind == "device"} == {0, 1}


# ----------------------------------------------------------------- a process for each

RANK = """
import sys
import minitorch
from cuda_ops.runtime import device

rank = int(sys.argv[1])
assert minitorch.cuda.is_available() and minitorch.cuda.device_count() > 1
assert minitorch.cuda.current_device() == 0 and not device.gpus
minitorch.cuda.set_device(rank)
minitorch.manual_seed(rank)
x = minitorch.randn(1000, 1000, device="cuda")
w = minitorch.ones(1000, 1000).pin_memory().cuda().requires_grad_()
(x @ w).relu().sum().backward()
optimizer = minitorch.optim.AdamW([w])
optimizer.step()
event = minitorch.cuda.Event()
event.record(minitorch.cuda.Stream())
assert x.device.index == w.grad.device.index == rank == event.device.index
assert list(device.gpus) == [rank] and type(device.current) is device.Current
minitorch.cuda.synchronize()
print("USED", *[i for i in range(minitorch.cuda.device_count())
                if minitorch.cuda.memory_reserved(i)])
if not device.SIMULATED:
    api = device.driver()
    for i in range(minitorch.cuda.device_count()):
        _, _, active = api.cuDevicePrimaryCtxGetState(api.cuDeviceGet(i)[1])
        print("CONTEXT", i, active)
    print("READY", flush=True)
    sys.stdin.readline()
"""


def start(rank: int) -> subprocess.Popen:
    code = RANK.replace("1000", "10") if SIMULATED else RANK
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(rank)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_a_process_for_each_gpu() -> None:
    processes = [start(rank) for rank in range(2)]
    for rank, process in enumerate(processes):
        text, _ = process.communicate("\n", timeout=200)
        assert process.returncode == 0, text
        if SIMULATED:
            assert "USED\n" in text  # it has no memory of its own
            continue
        assert f"USED {rank}\n" in text
        assert f"CONTEXT {rank} 1" in text and f"CONTEXT {1 - rank} 0" in text


FIRST_USE = """
import minitorch
from cuda_ops.runtime import device

x = minitorch.ones(3, device="cuda:1")
assert (x + x).sum().item() == 6 and x.device == "cuda:1"
assert minitorch.cuda.current_device() == 0
assert "context" not in vars(device.gpu(0)) or device.SIMULATED
assert minitorch.ones(3, device="cuda").device == "cuda:0"
assert (x + x).to("cuda:0").tolist() == [2.0] * 3
"""
LATER = """
import threading
import minitorch

x = minitorch.ones(3, device="cuda")
y = x + x
minitorch.cuda.set_device(1)
z = minitorch.ones(3, device="cuda")
assert (x + y).device == "cuda:0" and (z + z).device == "cuda:1"
assert (x + y).tolist() == [3.0] * 3 and (x.to("cuda") + z).tolist() == [2.0] * 3
seen = []
thread = threading.Thread(target=lambda: seen.append(minitorch.cuda.current_device()))
thread.start(); thread.join()
assert seen == [0]
"""


@pytest.mark.parametrize("code", [FIRST_USE, LATER], ids=["cuda:1 first", "later"])
def test_the_order_in_which_gpus_are_used(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


# ------------------------------------------------------------------- only real ones


@real
def test_memory_is_counted_for_each_gpu() -> None:
    before = [cuda.memory_allocated(i) for i in range(2)]
    cuda.reset_peak_memory_stats(1)
    x = minitorch.empty(1 << 20, device="cuda:1")
    assert cuda.memory_allocated(1) == before[1] + (1 << 22)
    assert cuda.memory_allocated(0) == before[0]
    assert cuda.max_memory_allocated(1) >= cuda.memory_allocated("cuda:1")
    with cuda.device(1):
        assert cuda.memory_allocated() == before[1] + (1 << 22)
    assert cuda.memory_reserved(1) >= cuda.memory_allocated(1)
    del x
    assert cuda.memory_allocated(1) == before[1]
    cuda.empty_cache()


@real
def test_a_full_gpu_says_so_and_the_other_goes_on() -> None:
    from cuda_ops.runtime.allocator import OutOfMemoryError

    total = cuda.get_device_properties(1).total_memory
    with pytest.raises(OutOfMemoryError, match=r"were asked for.*are free"):
        minitorch.empty(total // 4 + 1, device="cuda:1")
    for name in NAMES:
        assert minitorch.ones(3, device=name).sum().item() == 3


@real
def test_torch_shares_memory_of_the_second_gpu(torch: Any) -> None:
    x = minitorch.arange(12, device="cuda:1").float().reshape(3, 4)
    assert x.__dlpack_device__() == (2, 1)
    theirs = torch.from_dlpack(x.T)
    assert theirs.device == torch.device("cuda:1")
    theirs += 1
    assert x.sum().item() == 66 + 12
    assert torch.as_tensor(x, device="cuda:1").data_ptr() == theirs.data_ptr()
    for back in (minitorch.from_dlpack(theirs), minitorch.as_tensor(theirs)):
        assert back.device == "cuda:1" and (back + 1).sum().item() == 78 + 12
    with torch.cuda.device(1):  # torch comes back to our GPU
        torch.ones(3, device="cuda")
    torch.ones(3, device="cuda:1")
    assert (minitorch.ones(5, device="cuda:0") * 2).sum().item() == 10


@real
def test_a_form_of_each_kernel_is_loaded_on_both() -> None:
    from cuda_ops.elementwise import ZIP_FLAT
    from minitorch import operators

    on_both(lambda name: (minitorch.ones(300, device=name) * 1.5) + 1)
    x, y = on_both(lambda name: minitorch.ones(300, device=name))
    x + x, y + y
    gpus = {gpu.index for gpu, _ in ZIP_FLAT[operators.add]._forms}
    assert gpus == {0, 1}


@real
def test_copies_are_direct_where_the_driver_allows(capsys: Any) -> None:
    """Prints bytes a second: about 20 GB/s through the host, hundreds by NVLink."""
    x = minitorch.zeros(1 << 28, device="cuda:0")
    x.to("cuda:1")
    events = [cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    for _ in range(5):
        x.to("cuda:1")
    events[1].record()
    cuda.synchronize(0)
    seconds = events[0].elapsed_time(events[1]) / 1e3
    with capsys.disabled():
        print(f"\ncuda:0 -> cuda:1: {5 * 2**30 / seconds / 1e9:.0f} GB/s")


def test_raw_tensors_know_their_backend() -> None:
    a: TensorData = make(numbers((4, 4)), "cuda:1")
    out = get_backend(a.device).copy(a, dtypes.float64)
    assert out.device == "cuda:1" and runtime.current.gpu.index == 0
    np.testing.assert_array_equal(array_of(out), numbers((4, 4)).astype(float))
