"""Mojo files of an assignment, function by function.

With this file one can find the functions of a Mojo file (`definitions`), put together
what is checked for a task (`as_checked`: the library's file with the student's version
of the task's functions, and nothing else of theirs), read those functions for what they
may not use (`violations`), and let such files take the place of the library's in this
process (`use`).

There is no parser for Mojo in Python. A definition is found by its first line and ends
where the indentation does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from assignments.catalog import Assignment, File
from assignments.regions import functions_of, strip

DEFINITION = re.compile(r"^(\s*)(def|fn|struct|trait)\s+(\w+)")
CLOSING = (")", "]", "}")  # a signature's last line may be as far left as its first
COMMENT = re.compile(r'"""[\s\S]*?"""|#.*')
WORD = re.compile(r"\b[A-Za-z_]\w*")

# What leads out of a kernel: other modules, C functions, Python, machine code.
ALWAYS_REFUSED = frozenset(
    {
        "import",
        "external_call",
        "inlined_assembly",
        "Python",
        "PythonObject",
        "__mlir_op",
        "__mlir_attr",
        "sys_argv",
        "OwnedDLHandle",
    }
)


def definitions(text: str) -> dict[str, tuple[int, int]]:
    """First and last line, from 0 and exclusive, of each function and struct.

    Names are those with the structs around them: "Tiled.run".
    """
    lines = text.splitlines()
    found: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(lines):
        match = DEFINITION.match(line)
        if match is None:
            continue
        indent, name = len(match[1]), match[3]
        around = [
            outer
            for outer, (first, last) in found.items()
            if first < number < last and outer.count(".") < indent // 4
        ]
        first = number
        while first and re.match(rf"^ {{{indent}}}@\w", lines[first - 1]):
            first -= 1
        path = ".".join([*around[-1:], name])
        found[path] = first, _end(lines, number, indent)
    return found


def _end(lines: list[str], number: int, indent: int) -> int:
    """The line after the last one of the definition that begins at `number`."""
    last = number + 1
    for at in range(number + 1, len(lines)):
        line = lines[at]
        if not line.strip():
            continue
        inside = len(line) - len(line.lstrip()) > indent
        if not inside and not line.lstrip().startswith(CLOSING):
            break
        last = at + 1
    return last


def as_checked(
    file: File, text: str, assignment: Assignment, task: str, together: bool = False
) -> str:
    """What is compiled when `task` is checked.

    The library's file, without the task's solutions, with the functions of `text` that
    belong to the task. What else the student changed does not count.

    Args:
        together: take the student's functions for all tasks.
    """
    everything = tuple(t.id for t in assignment.tasks)
    tasks = everything if together else (task, *assignment.task(task).uses)
    base = strip(file.source.read_text(), file.path, tasks)
    names: set[str] = set().union(*(functions_of(file.regions(), t) for t in tasks))
    return replace(base, text, names)


def replace(base: str, text: str, names: Collection[str]) -> str:
    """`base` with the functions called `names` as they stand in `text`.

    A comment at each of them says at which line it stands there: errors of the compiler
    are about this text, and students have the other one.
    """
    lines, source = base.splitlines(), text.splitlines()
    ours, theirs = definitions(base), definitions(text)
    for name in sorted(names & ours.keys() & theirs.keys(), key=lambda n: -ours[n][0]):
        first, last = theirs[name]
        begin = f"{source[first]}  # line {first + 1}"
        lines[slice(*ours[name])] = [begin, *source[first + 1 : last]]
    return "\n".join(lines) + "\n"


def violations(
    file: File, text: str, assignment: Assignment, task: str
) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) for all that a task's functions use and may not.

    Of the file's own functions they may use those that the reference uses: a rung that
    calls a better one is not a solution.
    """
    reference = strip(file.source.read_text(), file.path, ())
    right, theirs = definitions(reference), definitions(text)
    top = {name for name in right if "." not in name}
    for name in sorted(functions_of(file.regions(), task) & theirs.keys()):
        allowed = set(_words(reference, right[name])) | set(name.split("."))
        for word, line in _words(text, theirs[name]).items():
            if word in ALWAYS_REFUSED or (word in top and word not in allowed):
                yield line + 1, f"{name} may not use {word}"


def _words(text: str, span: tuple[int, int]) -> dict[str, int]:
    """The words of some lines, without comments, and the first line of each."""
    blanked = COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    words: dict[str, int] = {}
    for number, line in enumerate(blanked.splitlines()[slice(*span)], span[0]):
        for word in WORD.findall(line):
            words.setdefault(word, number)
    return words
