#!/usr/bin/env python3
"""Prints the size of the code: what a reader has to find, and to hold in the head. Two checkouts can be compared.

    tools/house_figures.py [CHECKOUT...]

A loose file is a module that stands directly in a folder, `__init__.py` apart. A public name is a class, function or
constant of a module without a leading underscore. A forward is a function that only calls another one with its own
arguments. Code lines are lines without blank lines, comments and docstrings.
"""

import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

CODE = ("pinner", "api")
TESTS = ("tests",)
MOST_LOOSE = 15
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | ast.ClassDef | _Function
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def modules(checkout: Path, folders: tuple[str, ...]) -> dict[Path, str]:
    """The modules below these folders, with their text."""
    files = chain.from_iterable(sorted((checkout / folder).rglob("*.py")) for folder in folders)
    return {file.relative_to(checkout): file.read_text() for file in files}


def docstrings(tree: ast.AST) -> Iterator[ast.Expr]:
    """The string expressions of a module: docstrings, and those below constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def code_lines(text: str, tree: ast.AST) -> int:
    """The number of lines that have code."""
    words = {line for each in docstrings(tree) for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = (range(each.start[0], each.end[0] + 1) for each in tokens if each.type not in _NO_CODE)
    return len(set(chain.from_iterable(lines)) - words)


def public_names(tree: ast.Module) -> Iterator[str]:
    """The public names that a module defines."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def is_forward(function: _Function) -> bool:
    """Whether the function only calls another one with its own arguments."""
    body = [node for node in function.body if node not in tuple(docstrings(function))]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or not isinstance(body[0].value, ast.Call):
        return False
    own = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    passed = [*body[0].value.args, *(keyword.value for keyword in body[0].value.keywords)]
    wanted = own[1:] if own[:1] in (["self"], ["cls"]) else own
    return bool(wanted) and [each.id for each in passed if isinstance(each, ast.Name)] == wanted == own[-len(passed) :]


def figures(checkout: Path) -> dict[str, str]:
    """Each figure by its name."""
    texts = modules(checkout, CODE)
    trees = {file: ast.parse(text) for file, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, _Function)]
    classes = Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))
    double = sorted(name for name, count in classes.items() if count > 1 and not name.startswith("_"))
    everything = (*texts, *modules(checkout, TESTS))
    loose = Counter(str(file.parent) for file in everything if file.name != "__init__.py")
    longest = max(functions, key=lambda each: (each.end_lineno or each.lineno) - each.lineno)
    words = [len(str(each.value.value).split()) for tree in trees.values() for each in docstrings(tree)]  # type: ignore[attr-defined]
    full = [f"{folder} {count}" for folder, count in sorted(loose.items()) if count > MOST_LOOSE]
    return {
        "modules": str(len(texts)),
        "lines": str(sum(text.count("\n") for text in texts.values())),
        "code lines": str(sum(code_lines(text, trees[file]) for file, text in texts.items())),
        "public names": str(sum(len(list(public_names(tree))) for tree in trees.values())),
        "class names with two meanings": f"{len(double)} {' '.join(double)}",
        "forwards": str(sum(map(is_forward, functions))),
        "longest function": f"{(longest.end_lineno or 0) - longest.lineno + 1} lines, {longest.name}",
        "words in docstrings": str(sum(words)),
        f"folders with more than {MOST_LOOSE} loose files": f"{len(full)} {', '.join(full)}",
    }


def ways(checkout: Path) -> dict[str, str]:
    """The way of a run to the system call; see way_of_a_run.py. A checkout whose test fakes are others has none."""
    script = Path(__file__).with_name("way_of_a_run.py")
    paths = os.pathsep.join(str(path.resolve()) for path in (checkout, checkout / "tests"))
    traced = subprocess.run(
        [sys.executable, script], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    if traced.returncode:
        return {"way of a run": f"not known: {traced.stderr.strip().splitlines()[-1]}"}
    return {f"way of {name}": figure for name, figure in json.loads(traced.stdout).items()}


def main(checkouts: list[str]) -> None:
    """Print the figures of each checkout."""
    for checkout in checkouts or ["."]:
        print(f"{checkout}:")
        for name, figure in (figures(Path(checkout)) | ways(Path(checkout))).items():
            print(f"  {name}: {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
