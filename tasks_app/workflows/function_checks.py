"""Mistakes that a reader of a durable function's source can see: values carried from turn to turn.

A task that goes on in another process starts at its open turn, so a local variable that an earlier
turn wrote is not there. The check finds the usual forms of it; it proves nothing.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from tasks_app.domain.errors import ConfigurationError

_MUTATORS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"setdefault", "sort", "update"}
)
_CONTAINERS = frozenset({"list", "dict", "set", "Counter", "defaultdict", "deque", "OrderedDict"})


def check(function: Callable[..., Any]) -> None:
    """Refuse a function whose loops carry local variables.

    Raises:
        ConfigurationError: names the variable and the line.
    """
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        # Code without a file, as in a shell: nothing to read.
        return
    containers = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _makes_container(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in _names(target)
    }
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and _is_durable(loop.iter):
            _check_loop(function.__qualname__, loop, containers)


def _is_durable(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "loop"
    )


def _makes_container(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _CONTAINERS
    return isinstance(
        node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    )


def _check_loop(function: str, loop: ast.For, containers: set[str]) -> None:
    seen: dict[str, str] = {}
    for name, use, line in (use for statement in loop.body for use in _in_order(statement)):
        first = seen.setdefault(name, use)
        carried = first == "read" and use == "write"
        changed = use == "change" and name in containers and first != "write"
        if carried or changed:
            raise ConfigurationError(
                f"{function}, line {line}: {name} would be carried from turn to turn, but a task "
                "that goes on elsewhere starts at its open turn. Keep it in ctx.state()."
            )


def _in_order(node: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield (name, "read" | "write" | "change", line) in the order of execution."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield from _in_order(value)
            yield name, "read", node.lineno
            yield name, "write", node.lineno
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # Its own names are nobody else's.
            own = {name for part in node.generators for name in _names(part.target)}
            uses = (use for child in ast.iter_child_nodes(node) for use in _in_order(child))
            yield from (use for use in uses if use[0] not in own)
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if (
            attribute in _MUTATORS
        ):
            yield name, "change", node.lineno
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            yield name, "change", node.lineno
        case ast.Name(id=name, ctx=context):
            yield name, "write" if isinstance(context, ast.Store) else "read", node.lineno
            return
    for child in _children(node):
        yield from _in_order(child)


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node in the order of execution: values before their targets."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
            return []
        case ast.Assign():
            return [node.value, *node.targets]
        case ast.AnnAssign() | ast.NamedExpr():
            return [*([node.value] if node.value else []), node.target]
        case ast.For():
            return [node.iter, node.target, *node.body, *node.orelse]
        case _:
            return list(ast.iter_child_nodes(node))


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
