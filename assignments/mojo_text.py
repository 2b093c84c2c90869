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
# Texts, with the letters before them, and comments; a text first, because a comment's
# sign may stand in it.
UNREAD = re.compile(
    r"(\w*)(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|#.*"
)
# In backticks anything is a word, a comment's sign, too; in a text with letters before
# it there can be code, and a backslash can be the last character.
TICK = "`"
WORD = re.compile(rf"\b[A-Za-z_]\w*|{TICK}")
BOUND = (
    re.compile(r"\b(?:var|ref|comptime|alias)\s+([\w\s,()]+?)\s*[:=]"),
    re.compile(r"\bfor\s+([\w\s,()]+?)\s+in\b"),
    re.compile(r"^\s*([A-Za-z_][\w\s,]*?)\s*=(?!=)", re.MULTILINE),
)
# What may be used beside what the library's solution uses itself: the language, its
# numbers and vectors. Nothing leads to other modules, C functions, Python or files.
WORDS = frozenset(
    """
    def fn var ref comptime alias return raise raises pass break continue assert
    if elif else for while in and or not is try except finally True False None Self self
    mut read out always_inline parameter capturing Error
    Bool Int Int8 Int16 Int32 Int64 UInt UInt8 UInt16 UInt32 UInt64 Float16 Float32
    Float64 Scalar SIMD DType Array InlineArray Tuple simd_width_of
    range min max abs divmod len ceildiv align_up align_down print
    load store fma cast splat select join reduce_add reduce_max reduce_min size fill
    """.split()
)
# Words that stay what they are, whatever a function gives that name.
FIXED = frozenset(
    """
    import external_call inlined_assembly Python PythonObject sys_argv OwnedDLHandle
    open input exit abort
    """.split()
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

    They may use what the reference uses in the same place, `WORDS`, and the names that
    they give a meaning themselves: a rung that calls a better one is not a solution.
    """
    reference = strip(file.source.read_text(), file.path, ())
    right, theirs = definitions(reference), definitions(text)
    taken = FIXED | {name for name in right if "." not in name} | _imported(reference)
    for name in sorted(functions_of(file.regions(), task) & theirs.keys()):
        allowed = WORDS | _words(reference, right[name]).keys() | set(name.split("."))
        allowed |= _fields(reference) | (_bound(text, theirs[name]) - taken)
        for word, line in _words(text, theirs[name]).items():
            if word not in allowed:
                what = f"{TICK} or letters before a text" if word == TICK else word
                yield line + 1, f"{name} may not use {what}"


def _imported(text: str) -> set[str]:
    """The words of a file's import statements."""
    lines = re.findall(r"^from\b[^(\n]*(?:\([^)]*\))?|^import\b.*", _read(text), re.M)
    return {word for line in lines for word in WORD.findall(line)}


def _fields(text: str) -> set[str]:
    """The names of the fields of a file's structs."""
    return set(re.findall(r"^ {4}var (\w+):", text, re.MULTILINE))


def _bound(text: str, span: tuple[int, int]) -> set[str]:
    """The words to which some lines give a meaning."""
    lines = _read(text, span)
    groups = [found for pattern in BOUND for found in pattern.findall(lines)]
    groups += [part for signature in _signatures(lines) for part in signature]
    words = {word for group in groups for word in WORD.findall(group)}
    return {word for word in words if not word.startswith("__")}


def _signatures(text: str) -> Iterator[list[str]]:
    """The name and the parameters of each definition."""
    for match in re.finditer(r"\b(?:def|fn)\s+(\w+)", text):
        depth, at = 0, match.end()
        while at < len(text) and (depth or text[at] != ":"):
            depth += (text[at] in "([") - (text[at] in ")]")
            at += 1
        yield [match[1], *re.findall(r"(\w+)\s*:", text[match.end() : at])]


def _read(text: str, span: tuple[int, int] | None = None) -> str:
    """Some lines without texts and comments; lines keep their numbers.

    They are read by themselves, as they come into the library's file: what stands
    before them in the student's could begin a text that has no end there.
    """
    lines = text.splitlines()[slice(*(span or (None,)))]

    def blank(found: re.Match[str]) -> str:
        return (TICK if found[1] else " ") + "\n" * found[0].count("\n")

    return UNREAD.sub(blank, "\n".join(lines))


def _words(text: str, span: tuple[int, int]) -> dict[str, int]:
    """The words of some lines, and the first line of each."""
    words: dict[str, int] = {}
    for number, line in enumerate(_read(text, span).splitlines(), span[0]):
        for word in WORD.findall(line):
            words.setdefault(word, number)
    return words
