"""X-rays of kernels: of the library, of a student's workspace, of anybody's file.

With this file `minitorch xray` and `minitorch test --xray` get the scene of a kernel
(`scene_of`). A process either simulates a GPU or compiles for one, and what a student
wrote takes the library's place before it is imported. So there are two processes for
each kernel, `python -m assignments.xrays`: one runs it, one compiles it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assignments import catalog, overlay, workspace
from assignments.runner import Job, Own, Runners

SECONDS = 300  # after which a kernel is taken for one without an end
LAUNCHER = "xray"  # the function of a user's file that launches its kernels


@dataclass
class Target:
    """A kernel to look at.

    Attributes:
        name: of the kernel.
        file: where a user's kernel is; "" for those of the library.
        modules: files that take the place of the library's modules, by their names.
        kept: for each of these, functions that are the library's all the same.
        lanes: whether what each lane does is wanted.
    """

    name: str
    file: str = ""
    modules: dict[str, str] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    lanes: bool = False


def names() -> list[str]:
    """Those of the library's kernels that can be looked at."""
    found: list[str] = _ask("names", vars(Target("the library")))
    return found


def tasks_of(name: str) -> list[catalog.Task]:
    """The tasks in which the kernel called `name` is written."""
    tasks = (task for one in catalog.load_all() for task in one.tasks)
    return [task for task in tasks if name in task.xray]


def scene_of(
    text: str,
    place: workspace.Workspace | None = None,
    arch: tuple[int, int] | None = None,
    lanes: bool = False,
) -> dict[str, Any]:
    """The scene of `text`: a kernel of the library, or FILE:KERNEL.

    Args:
        place: the workspace whose files take the place of the library's.
        arch: the chip that it is compiled for, if it is to be compiled ("static").
        lanes: with what each lane did, which is long.

    Raises:
        ValueError: there is no such kernel, or nothing launches it.
        RuntimeError: it is not written, or could not be run.
    """
    file, _, name = text.rpartition(":")
    if file and not Path(file).is_file():
        raise ValueError(f"xray: there is no file {file}")
    target = Target(name, str(Path(file).resolve()) if file else "", lanes=lanes)
    with tempfile.TemporaryDirectory(prefix="minitorch-xray-") as folder:
        if place is not None:
            _use(place, target, Path(folder))
        request = vars(target)
        if arch is None:
            return _ask("run", request)
        with _start("compile") as compiling:  # gets ready while the other one runs
            try:
                scene = _ask("run", request)
            except BaseException:
                compiling.kill()
                raise
            seen = {key: scene[key] for key in ("launch", "kernel", "module")}
            scene["static"] = _answer(compiling, request | seen | {"arch": arch})
    return scene


def _use(place: workspace.Workspace, target: Target, folder: Path) -> None:
    """Let the workspace's files stand for the library's, as when its task is tested."""
    tasks = [t for t in tasks_of(target.name) if t.assignment == place.assignment.id]
    folders = [str(f) for f in place.folders]
    if not tasks:
        files = workspace.files_of(place.folders)
        target.modules = {name: str(path) for name, path in files.items()}
        return
    own = Own(Runners(), Job(tasks[0].id, "cuda", folders))
    if own.problem is not None:
        raise RuntimeError(f"xray: {own.problem.text} ({own.problem.lines[0][1]})")
    target.modules, target.kept = own.sources(folder)


def _start(what: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parent.parent)
    known = {n: v for n, v in os.environ.items() if n != "NUMBA_ENABLE_CUDASIM"}
    path = os.pathsep.join(filter(None, (root, known.get("PYTHONPATH"))))
    if what == "run":
        known |= {"NUMBA_ENABLE_CUDASIM": "1", "MINITORCH_REAL_SIZES": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "assignments.xrays", what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**known, "PYTHONPATH": path},
    )  # fmt: skip


def _ask(what: str, request: dict[str, Any]) -> Any:
    """What a new process answers."""
    with _start(what) as process:
        return _answer(process, request)


def _answer(process: subprocess.Popen[str], request: dict[str, Any]) -> Any:
    """What a process answers; its error is raised here."""
    try:
        out, _ = process.communicate(json.dumps(request), SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise RuntimeError(
            f"xray: {request['name']} was not through after {SECONDS} seconds; launch "
            f"it on a smaller problem, or look for a loop without an end"
        ) from None
    except BaseException:  # Ctrl-C; the process may have no end
        process.kill()
        raise
    if process.returncode or not out:
        raise RuntimeError(
            f"xray: the process that looked at {request['name']} ended with code "
            f"{process.returncode}"
        )
    answer = json.loads(out)
    if "raised" in answer:
        kind = {"ValueError": ValueError}.get(answer["raised"], RuntimeError)
        raise kind(answer["text"])
    return answer["value"]


# ------------------------------------------------------------------- in the processes


def run(request: dict[str, Any]) -> Any:
    """The scene of a run in the simulator."""
    from cuda_ops.ladders import launches
    from cuda_ops.simulator.xray import xray

    name, file = request["name"], request["file"]
    if not file:
        launch = launches.find(name)
        return xray(launch.run, launch.kernel, request["lanes"])
    module = _load(file)
    launcher = module.get(LAUNCHER)
    if not callable(launcher):
        raise ValueError(
            f"xray: {file} has no function {LAUNCHER}(), which launches {name}: it "
            f"takes no arguments, makes those of the kernel and calls "
            f"{name}[blocks, threads](...)"
        )
    _kernel_in(module, name, file)
    return xray(launcher, name, request["lanes"])


def compile(request: dict[str, Any]) -> Any:
    """What is known of the same launch without running it."""
    from cuda_ops.runtime.compiled import static_facts

    launch = request["launch"]
    warnings.simplefilter("ignore")  # of lines that no file has: the library's twins
    try:
        made = _compiled_kernel(request)
        blocks, threads = (
            x * y * z for x, y, z in (launch["blocks"], launch["threads"])
        )
        words, arch = launch["arguments"], tuple(request["arch"])
        return static_facts(made, words, arch, blocks, threads, launch["shared"])
    except Exception as error:  # the rest of the scene is worth having without it
        text = f"{type(error).__name__}: {error}"
        if type(error).__name__ == "CudaSupportError":
            text = (
                "Numba asks the driver, which is not there, about something in it (a "
            )
            text += "slice or sum of an array, text, or cuda.warpsize; write 32)"
        return {"error": text}


def _compiled_kernel(request: dict[str, Any]) -> Any:
    if request["file"]:
        return _kernel_in(_load(request["file"]), request["name"], request["file"])
    from cuda_ops.registry import all_kernels

    kernels, name = all_kernels(request["module"]), request["kernel"]
    if name not in kernels:  # of a template that is made of one in another file
        kernels = all_kernels()
    if name not in kernels:
        raise ValueError(f"{name} has no example signature")
    return kernels[name]


def all_names(request: dict[str, Any]) -> list[str]:
    """The names of all kernels that can be launched."""
    from cuda_ops.ladders.launches import LAUNCHES

    return sorted(LAUNCHES)


def _load(file: str) -> dict[str, Any]:
    """What a user's file defines, with Numba's kernels as ours."""
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"xray: {file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RuntimeError(
            f"xray: {file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    from cuda_ops.block.intrinsics import device
    from cuda_ops.runtime.launch import Kernel

    found = vars(module)
    for name, value in found.items():
        if not hasattr(value, "py_func"):
            continue
        if not is_device(value):
            options = getattr(value, "targetoptions", {})
            wanted = [n for n in ("fastmath", "max_registers") if options.get(n)]
            known = {option: options[option] for option in wanted}
            found[name] = Kernel(value.py_func, name, **known)
        else:  # which Numba would compile for the GPU that is here
            found[name] = device(value.py_func)
    return found


def is_device(value: Any) -> bool:
    """Whether one of Numba's functions is called by kernels, and not launched."""
    options = getattr(value, "targetoptions", {})
    return bool(options.get("device") or getattr(value, "_device", False))


def _kernel_in(module: dict[str, Any], name: str, file: str) -> Any:
    from cuda_ops.runtime.launch import Kernel

    kernels = {k: v for k, v in module.items() if isinstance(v, Kernel)}
    if name not in kernels:
        known = ", ".join(sorted(kernels)) or "none"
        raise ValueError(
            f"xray: {file} has no kernel {name!r}; it has {known} (a kernel is "
            f"decorated by cuda_ops.runtime.launch.kernel or numba.cuda.jit)"
        )
    return kernels[name]


def main() -> None:
    """Answer one request from stdin; what is printed meanwhile goes to stderr."""
    out, sys.stdout = sys.stdout, sys.stderr
    act = {"run": run, "compile": compile, "names": all_names}[sys.argv[1]]
    try:
        importlib.import_module("numba.cuda")  # while the other process still works
    except (ImportError, AttributeError):  # the library says what is missing
        pass
    request = json.loads(sys.stdin.read())
    try:
        files = {name: Path(path) for name, path in request["modules"].items()}
        overlay.install(files, request["kept"])
        answer = {"value": act(request)}
    except ImportError as error:
        advice = "pip install -e '.[cuda13]' (no GPU is needed)"
        answer = {"raised": "", "text": f"xray: {error}. What to do: {advice}"}
    except Exception as error:
        answer = {"raised": type(error).__name__, "text": str(error)}
    out.write(json.dumps(answer))


if __name__ == "__main__":
    main()
