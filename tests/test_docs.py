"""The documentation runs: the walk through `a + b`, and the README's program."""

from __future__ import annotations

import platform
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minitorch

ROOT = Path(minitorch.__file__).parent.parent


def test_trace_add_walks_the_trail(capsys):
    runpy.run_path(str(ROOT / "docs" / "trace_add.py"), run_name="__main__")
    printed = capsys.readouterr().out
    trail = "minitorch.tensor.elementwise -> minitorch.functions.elementwise -> {} -> "
    for backend in ("minitorch.simple_ops.elementwise", "fast_ops.elementwise"):
        assert trail.format(backend) + "minitorch.operators" in printed
    (count,) = re.findall(r"enters (\d+) Python functions before the kernel", printed)
    assert int(count) <= 9


def test_the_program_in_the_readme_learns_xor(capsys):
    text = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    space: dict = {}
    exec(compile(program, "README.md", "exec"), space)
    assert capsys.readouterr().out.strip()
    out = space["model"](space["X"]).detach().numpy()
    assert np.abs(out - space["y"].numpy()).max() < 0.1


def test_the_executor_in_contributing_does_what_is_written(capsys):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.S)
    exec(compile(program, "CONTRIBUTING.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_paths_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    named = re.findall(r"(?:minitorch|fast_ops|docs)/[\w/]+\.py", text)
    assert links and named
    for path in {*links, *named}:
        assert (ROOT / path).exists(), path


every_page = pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name
)


@every_page
def test_code_that_is_quoted_is_the_librarys(page):
    text = page.read_text()
    pieces = re.findall(r"<!-- from (\S+) -->\n```\w+\n(.*?)```", text, re.S)
    assert len(pieces) == text.count("<!-- from")
    for path, code in pieces:
        library = (ROOT / path).read_text()
        library = re.sub(r"^ *# (BEGIN|END) SOLUTION .*\n", "", library, flags=re.M)
        # A method is quoted without the indentation that it has in its class.
        found = code in library or textwrap.indent(code, "    ") in library
        assert found, f"{path} has changed; {page.name} quotes it"


def test_an_operation_in_one_file_runs_on_every_device(device):
    space = runpy.run_path(str(ROOT / "docs" / "mish.py"))
    numbers = np.linspace(-9, 9, 19, dtype=np.float32)
    x = minitorch.tensor(numbers, device=device, requires_grad=True)
    theirs = torch.tensor(numbers, requires_grad=True)
    out, expected = space["mish"](x), torch.nn.functional.mish(theirs)
    out.backward(minitorch.ones_like(x))
    expected.backward(torch.ones_like(theirs))
    np.testing.assert_allclose(out.tolist(), expected.tolist(), 1e-6, 1e-6)
    np.testing.assert_allclose(x.grad.tolist(), theirs.grad.tolist(), 1e-5, 1e-6)
    with pytest.raises(TypeError, match=r"mish.*int64"):
        space["mish"](minitorch.tensor([1], device=device))


def test_the_page_on_the_compiler_shows_what_is_made(capsys):
    program = runpy.run_path(str(ROOT / "docs" / "compiled.py"), run_name="docs")
    page = (ROOT / "docs" / "compiler.md").read_text()
    loop = program["loop"]()
    gelu, use, softmax, made = re.findall(r"```python\n(.*?)```", page, re.S)
    assert made in loop
    space: dict = {"minitorch": minitorch, "model": minitorch.nn.ReLU()}
    x = space["x"] = minitorch.randn(1024, 1024)
    for piece in (gelu, use, softmax):
        exec(compile(piece, "compiler.md", "exec"), space)
    assert capsys.readouterr().out in page
    assert (space["softmax"](x) == program["softmax"](x)).all()
    program["main"]()
    assert loop in capsys.readouterr().out


@every_page
def test_paths_in_the_book_exist(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for path in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (ROOT / "docs" / path).exists(), path


@pytest.mark.extras
def test_the_chapter_on_gpu_kernels_names_every_rung():
    pytest.importorskip("numba_cuda")
    from cuda_ops.matmul.matmul import LADDER

    text = (ROOT / "docs" / "gpu_kernels.md").read_text()
    for rung in LADDER:
        assert f"`{rung.__name__}`" in text
    for test in re.findall(r"`(test_\w+)`", text):
        files = (ROOT / "tests").rglob("test_*.py")
        assert any(f"def {test}(" in file.read_text() for file in files), test


@pytest.fixture(scope="module")
def what_compilers_make() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "what_compilers_make.py"))


x86_only = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly"
)


def check_loop(found: dict[str, Any]) -> None:
    """Exponentials are taken on vectors that stay in registers."""
    lanes = int(found["vector"].split()[0]) // 32
    vectors, rest = divmod(found["numbers a round"], lanes)
    assert lanes in (4, 8, 16) and vectors >= 1 and rest == 0
    assert found["multiply-adds"] >= 5 * vectors  # the steps of the polynomial
    assert 5 < found["registers"] <= 32


@x86_only
def test_what_numba_makes_of_softmax(what_compilers_make):
    check_loop(what_compilers_make["facts"](what_compilers_make["numba_assembly"]()))


@pytest.mark.extras
@x86_only
def test_what_mojo_makes_of_softmax(what_compilers_make):
    try:
        text = what_compilers_make["mojo_assembly"]()
    except ImportError as error:
        pytest.skip(f"no Mojo compiler: {error}")
    found = what_compilers_make["facts"](text)
    check_loop(found)
    assert found["from the stack"] == 0


@pytest.mark.extras
def test_what_numba_makes_of_softmax_on_a_gpu(what_compilers_make):
    pytest.importorskip("numba_cuda", reason="needs the extra cuda13")
    try:
        found = what_compilers_make["gpu_facts"]()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"kernels for GPUs cannot be compiled here: {error}")
    assert found["spilled bytes"] == 0 and found["vector loads"] == 8
