"""Ranks that are threads: the readable engine, and what all engines refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rank_checks
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import quick
from minitorch import distributed as dist
from minitorch.autodiff import is_grad_enabled
from minitorch.distributed import ReduceOp, classroom, spawn_threads
from minitorch.tensor import Tensor

ones = minitorch.ones


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("check", rank_checks.CHECKS, ids=lambda f: f.__name__)
def test_collectives_and_messages(check: Callable[[], None], n: int) -> None:
    spawn_threads(check, n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_through_collectives(n: int) -> None:
    spawn_threads(rank_checks.gradients_through_collectives, n)


def test_on_every_device(device: str) -> None:
    def program() -> list[Any]:
        x = minitorch.arange(4.0).to(device) + dist.get_rank()
        y = minitorch.zeros(8, device=device)
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
        return [str(y.device), y.tolist()]

    first, second = spawn_threads(program, 2)
    assert first == second and first[1] == [1, 3, 5, 7] * 2


def test_the_programs_in_the_book(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(minitorch.__file__).parent.parent / "docs" / "distributed.md"
    text = page.read_text()
    both = re.findall(r"```python\n([^`]*)```\n\n```text\n(.*?)```", text, re.S)
    assert len(both) == text.count("```text")
    for program, printed in both:
        exec(compile(program, page.name, "exec"), {})
        assert capsys.readouterr().out == printed


def test_each_rank_has_its_own_randomness_and_gradient_mode() -> None:
    def program() -> Any:
        assert is_grad_enabled()
        minitorch.manual_seed(dist.get_rank())
        first = minitorch.rand(2).tolist()
        if dist.get_rank() == 0:
            with minitorch.no_grad():
                dist.barrier()
        else:
            dist.barrier()
            assert is_grad_enabled()
        return first + minitorch.rand(2).tolist()

    minitorch.manual_seed(9)
    expected = [minitorch.rand(2).tolist()]
    minitorch.manual_seed(9)
    drawn = spawn_threads(program, 3)
    assert minitorch.rand(2).tolist() == expected[0]  # the caller's place is its own
    for rank, numbers in enumerate(drawn):
        minitorch.manual_seed(rank)
        assert numbers == minitorch.rand(2).tolist() + minitorch.rand(2).tolist()
    with minitorch.no_grad():
        assert spawn_threads(is_grad_enabled, 2) == [False, False]


def by_rank(*programs: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: programs[dist.get_rank()]()


def failing() -> None:
    raise KeyError("lost")


@pytest.mark.parametrize(
    "program, message",
    [
        (
            by_rank(lambda: dist.all_reduce(ones(3)), lambda: dist.broadcast(ones(3))),
            r"rank 1 of the group called broadcast\(3 of float32, src=0\), and rank 0",
        ),
        (
            lambda: dist.all_reduce(ones(3 + dist.get_rank())),
            r"called all_reduce\(4 of float32, SUM\), and rank 0 called all_reduce\(3",
        ),
        (
            lambda: dist.all_reduce(
                ones(3), group=dist.new_group([0, 1][dist.get_rank() :])
            ),
            r"rank 1 of the group called new_group\(\[1\]\), and rank 0 called new_gro",
        ),
        (
            by_rank(lambda: dist.recv(ones(3), 1), lambda: dist.recv(ones(3), 0)),
            "rank 0 waits for a message from rank 1; rank 1 waits for a message from",
        ),
        (by_rank(dist.barrier, lambda: None), "rank 1 waits for nothing: it has ended"),
        (by_rank(dist.barrier, failing), "rank 1 failed: KeyError: 'lost'"),
        (
            by_rank(lambda: dist.send(ones(2), 1), lambda: dist.recv(ones(3), 0)),
            "rank 0 of the group sent 2 of float32; expected 3",
        ),
        (
            lambda: dist.all_to_all_single(
                ones(2), ones(2), [1, 1], [2 * dist.get_rank(), 2 - 2 * dist.get_rank()]
            ),
            "expects .1, 1. elements from each rank, and they send .2, 0.",
        ),
    ],
)
def test_ranks_that_do_not_agree_are_told(program: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        spawn_threads(program, 2)


def test_what_cannot_be_sent() -> None:
    """Refused before anything is sent: all ranks can go on."""
    wide = ones(3, 4)
    whole = ones(4, dtype=minitorch.int64)
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: dist.all_reduce(wide.T), ValueError, r"\(4, 3\) and strides \(1, 4\)"),
        (lambda: dist.all_reduce([1.0]), TypeError, "tensor is a list"),  # type: ignore[arg-type]
        (lambda: dist.all_reduce(wide, "sum"), TypeError, "op is 'sum'"),  # type: ignore[arg-type]
        (lambda: dist.all_reduce(whole, ReduceOp.AVG), ValueError, "AVG of int64"),
        (lambda: dist.all_reduce(wide, group=3), TypeError, "group is a int"),
        (lambda: dist.broadcast(wide, 2), ValueError, r"src is 2; .* \[0, 1\]"),
        (lambda: dist.send(wide, dist.get_rank()), ValueError, "which is this rank"),
        (
            lambda: dist.all_gather_into_tensor(ones(7), ones(4)),
            ValueError,
            r"has 7 element\(s\), of shape \(7,\); expected 8: 2 ranks give 4 each",
        ),
        (
            lambda: dist.reduce_scatter_tensor(ones(4), ones(7)),
            ValueError,
            "input has 7",
        ),
        (
            lambda: dist.all_gather_into_tensor(ones(8), whole),
            ValueError,
            "output_tensor is float32 on 'cpu'; expected int64",
        ),
        (lambda: dist.all_gather([ones(3)], ones(3)), ValueError, "a list of 2"),
        (
            lambda: dist.all_gather([ones(3)] * 2, None),  # type: ignore[arg-type]
            TypeError,
            "tensor is a NoneType",
        ),
        (
            lambda: dist.all_gather([ones(3), ones(2)], ones(3)),
            ValueError,
            r"tensor_list\[1\] has 2",
        ),
        (
            lambda: dist.all_to_all_single(ones(3), ones(4)),
            ValueError,
            r"output has 3 row\(s\), and there are 2 ranks",
        ),
        (
            lambda: dist.all_to_all_single(ones(4), ones(4), [1, 2], [2, 2]),
            ValueError,
            r"output_split_sizes are \[1, 2\]",
        ),
        (lambda: dist.batch_isend_irecv([]), ValueError, "one or more"),
        (
            lambda: dist.batch_isend_irecv([(dist.isend, wide, 1)]),  # type: ignore[list-item]
            ValueError,
            "one or more P2POps",
        ),
        (lambda: dist.get_global_rank(None, -1), ValueError, "group_rank is -1; .* 1$"),
        (lambda: dist.new_group([0, 5]), ValueError, "a rank is 5"),
        (lambda: dist.init_device_mesh("cpu", (3,)), ValueError, "3 places, and there"),
        (lambda: dist.DeviceMesh("cpu", [0, 0]), ValueError, r"the ranks are \[0, 0\]"),
        (
            lambda: dist.DeviceMesh("cpu", [[0], [1]], mesh_dim_names=["a"]),
            ValueError,
            "one for each of the 2",
        ),
        (lambda: dist.init_device_mesh("gpu", (2,)), ValueError, "type is 'gpu'"),
        (lambda: dist.init_device_mesh("cpu", (-1, -2)), ValueError, "1 or more each"),
        (lambda: dist.init_process_group("gloo"), RuntimeError, "already"),
        (lambda: spawn_threads(ones, 2, 1), RuntimeError, "already"),
    ]

    def program() -> None:
        for call, kind, message in wrong:
            with pytest.raises(kind, match=message):
                call()
        root = dist.get_rank() == 0
        with pytest.raises(ValueError, match=r"got None|only rank 0 has one"):
            dist.scatter(ones(1), None if root else [ones(1)] * 2)
        dist.barrier()

    spawn_threads(program, 2)


def test_without_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert dist.is_available() and not dist.is_initialized()
    with pytest.raises(ValueError, match="no process group; call minitorch"):
        dist.all_reduce(ones(3))
    with pytest.raises(RuntimeError, match="MASTER_ADDR, MASTER_PORT, RANK, WORLD"):
        dist.init_process_group("gloo")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("rank is 2 and world_size 2", {"rank": 2, "world_size": 2}),
        ("rank is -1 and world_size 2", {"world_size": 2}),
        ("timeout is 0; expected more", {"rank": 0, "world_size": 2, "timeout": 0}),
        ("torch says: Unknown backend", {"rank": 0, "world_size": 1, "backend": "mp"}),
    ]
    for message, options in wrong:
        with pytest.raises(ValueError, match=message):
            dist.init_process_group(init_method=f"file://{tmp_path}/at", **options)
    with pytest.raises(TypeError, match="group_name"):
        dist.init_process_group("gloo", group_name="a")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no process group"):
        dist.get_rank()


def test_a_saved_tensor_that_was_received_into_is_noticed() -> None:
    def program() -> None:
        x = ones(3)
        y = (x * minitorch.ones(3, requires_grad=True)).sum()
        dist.all_reduce(x)
        with pytest.raises(RuntimeError, match="in place"):
            y.backward()

    spawn_threads(program, 2)


# ------------------------------------------------------------------- the classroom

ALGORITHMS = (
    classroom.ring_all_reduce,
    classroom.tree_all_reduce,
    classroom.recursive_doubling,
)


@quick
@given(
    st.integers(1, 6),
    st.sampled_from((0, 1, 2, 3, 13, 64)),
    st.sampled_from(rank_checks.DTYPES),
    st.sampled_from(list(classroom.COMBINE)),
    st.sampled_from(ALGORITHMS),
)
def test_messages_alone_do_what_the_engine_does(
    n: int, size: int, dtype: Any, op: ReduceOp, algorithm: Any
) -> None:
    def program() -> tuple[Tensor, Tensor]:
        x = rank_checks.given(size, dtype, n)[dist.get_rank()]
        ours, engines = (minitorch.from_numpy(x.copy()) for _ in range(2))
        algorithm(ours, op)
        dist.all_reduce(engines, op)
        rank_checks.same(ours, engines.numpy())
        return ours

    results = spawn_threads(program, n)
    assert all(x.tolist() == results[0].tolist() for x in results)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_messages_make_no_means(algorithm: Any) -> None:
    with pytest.raises(RuntimeError, match=r"ReduceOp.AVG: two means .* divide by"):
        spawn_threads(lambda: algorithm(minitorch.ones(3), ReduceOp.AVG), 3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_lies_with_gaps_is_refused_on_all_ranks(algorithm: Any) -> None:
    def program() -> None:
        with pytest.raises((ValueError, RuntimeError), match="view"):
            algorithm(ones(2, 3).T)

    spawn_threads(program, 3)


@pytest.mark.parametrize("n, size", [(1, 4), (2, 6), (4, 8), (3, 2)])
def test_the_two_halves_of_the_ring(n: int, size: int) -> None:
    def program() -> None:
        x = minitorch.arange(float(n * size)) * (dist.get_rank() + 1)
        expected = minitorch.zeros(size)
        dist.reduce_scatter_tensor(expected, x.clone())
        part = classroom.ring_reduce_scatter(x)
        assert part.tolist() == expected.tolist()
        everything = minitorch.zeros(n * size)
        dist.all_gather_into_tensor(everything, expected)
        classroom.ring_all_gather(x)
        assert x.tolist() == everything.tolist()

    spawn_threads(program, n)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_the_formulas_count_the_messages(n: int, monkeypatch: Any) -> None:
    """Steps: the latency's share. Bytes: what the busiest rank sends or receives."""
    size = 8 * n
    log = minitorch.distributed.threads.ThreadGroup

    def cost(algorithm: Any) -> int:
        sent = [0] * n

        def send(self: Any, x: Tensor, peer: int, tag: int) -> Any:
            sent[self.me] += x.numel()
            return original(self, x, peer, tag)

        monkeypatch.setattr(log, "send", send)
        spawn_threads(lambda: algorithm(ones(size)), n)
        monkeypatch.setattr(log, "send", original)
        return max(sent)

    original = log.send
    ring = classroom.ring_seconds(n, size, 0, 1)
    assert cost(classroom.ring_all_reduce) == ring == 2 * size * (n - 1) / n
    doubling = classroom.doubling_seconds(n, size, 0, 1)
    assert cost(classroom.recursive_doubling) <= doubling
    assert cost(classroom.tree_all_reduce) <= classroom.tree_seconds(n, size, 0, 1)
    assert classroom.ring_seconds(n, 0, 1, 1) == 2 * (n - 1)
