"""The product's source files and what can be read from their syntax trees."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("runtime_project", "tasks_app", "ledger_app")


@cache
def product_files() -> tuple[Path, ...]:
    """Return every Python file of the product, migrations left out."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(path for path in files if "migrations" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    """Return the file's syntax tree, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of the file's syntax tree; walking it takes longer than parsing it."""
    return tuple(ast.walk(tree(path)))


def name_of(path: Path) -> str:
    """Return the path as it is written in lists: relative to the project."""
    return path.relative_to(ROOT).as_posix()


def calls(path: Path) -> Iterator[ast.Call]:
    """Yield every call in a file."""
    for node in nodes(path):
        if isinstance(node, ast.Call):
            yield node


def called_name(call: ast.Call) -> str:
    """Return the last part of what is called: `atomic` for `transaction.atomic(…)`."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def root_name(node: ast.expr) -> str:
    """Return the first name of a chain: `Task` for `Task.objects.filter(…).update`."""
    while True:
        match node:
            case ast.Attribute(value=inner) | ast.Call(func=inner):
                node = inner
            case ast.Name(id=name):
                return name
            case _:
                return ""


def texts(path: Path) -> Iterator[str]:
    """Yield every string of a file, docstrings left out; parts of an f-string as one text."""
    docstrings = _docstrings(tree(path))
    inside: set[ast.AST] = set()
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            inside.update(ast.walk(node))
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield "".join(map(str, parts))
        elif _is_text(node) and node not in inside and node not in docstrings:
            yield str(node.value)


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _docstrings(module: ast.Module) -> set[ast.AST]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.body[0].value
        for node in ast.walk(module)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


@dataclass(frozen=True)
class Variable:
    """One environment variable that settings.py reads: its reader's name and default as text."""

    name: str
    kind: str
    default: str


@cache
def variables() -> dict[str, Variable]:
    """Return every variable that `runtime_project/settings.py` reads through `env`."""
    found = {}
    for call in calls(ROOT / "runtime_project/settings.py"):
        if root_name(call.func) == "env" and call.args and isinstance(call.args[0], ast.Constant):
            named = [word.value for word in call.keywords if word.arg == "default"]
            values = [*call.args[1:], *named]
            default = ast.unparse(values[0]) if values else ""
            name = str(call.args[0].value)
            found[name] = Variable(name, called_name(call), default)
    return found


def without_comments(sql: str) -> str:
    """Return SQL without `--` comments, so that a comment may name what a statement may not."""
    return re.sub(r"--[^\n]*", "", sql)
