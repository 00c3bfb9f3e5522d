"""System checks of what authors declare (E12), told by `manage.py check` and when a process starts.

What a declaration says about itself is refused at registration already (`registry`); here stands
what needs every module loaded, the settings, or the author's source. Reading source finds the usual
mistakes in `plan`; it does not follow calls, aliases or imports into other functions.
"""

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from tasks_app import conf
from tasks_app.workflows import registry
from tasks_app.workflows.definition import StepDefinition, Workflow

# Names whose use in `plan` reads or changes something that is different the next time.
_MODULES = frozenset({"httpx", "random", "requests", "secrets", "socket", "subprocess", "urllib"})
_CALLS = frozenset(
    {"open", "input", "uuid1", "uuid4"}
    | {"time.sleep", "time.time", "time.monotonic", "timezone.now"}
    | {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
)
_DECORATORS = frozenset({"step", "effect"})


@register
def check_workflows(
    app_configs: Sequence[AppConfig] | None, **options: object
) -> list[CheckMessage]:
    """Check every workflow that is registered."""
    return [
        message
        for definition in registry.registered()
        for found in (_check_goal(definition), _check_steps(definition), _check_source(definition))
        for message in found
    ]


def _check_goal(definition: type[Workflow[Any, Any]]) -> Iterator[CheckMessage]:
    goal = definition.goal_type()
    if goal.model_config.get("extra") != "forbid":
        yield Warning(
            f"The goal of {definition.workflow_name} takes fields that it does not know "
            f"({goal.__module__}.{goal.__qualname__}): a mistyped one changes nothing, unnoticed.",
            hint='Declare it with extra="forbid".',
            id="tasks_app.W016",
        )


def _check_steps(definition: type[Workflow[Any, Any]]) -> Iterator[CheckMessage]:
    lease_seconds = conf.runtime().lease_seconds
    workflow = definition()
    for declared in definition.declared_steps():
        name = f"{definition.workflow_name}.{declared.name}"
        if declared.atomic and declared.timeout_seconds >= lease_seconds:
            yield Error(
                f"{name} is atomic and may take {declared.timeout_seconds:g} seconds, "
                f"but a lease ends after {lease_seconds:g}.",
                hint="Give it a shorter timeout_seconds, or make it a plain step.",
                id="tasks_app.E011",
            )
        problem = _result_problem(workflow, declared)
        if problem:
            yield Error(
                f"The result of {name} cannot be stored: {problem}",
                hint="Return plain data, pydantic models or dataclasses, and annotate them.",
                id="tasks_app.E012",
            )


def _result_problem(workflow: Workflow[Any, Any], declared: StepDefinition) -> str:
    """Return why a step's result has no JSON form; empty when it has one, or says nothing."""
    method = workflow.callable_of(declared.name)
    try:
        hints = typing.get_type_hints(inspect.unwrap(getattr(method, "__func__", method)))
        TypeAdapter(hints.get("return", Any)).json_schema(mode="serialization")
    except (NameError, TypeError, PydanticUserError) as error:
        return str(error).splitlines()[0]
    return ""


# --- what the source shows -----------------------------------------------------------------------


def _check_source(definition: type[Workflow[Any, Any]]) -> Iterator[CheckMessage]:
    found = _source_of(definition)
    if found is None:
        return
    tree, file, first_line = found
    methods = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    yield from _check_twice(definition, [node for node in methods if _is_declared(node)])
    for method in methods:
        if method.name not in {"plan", "replan"}:
            continue
        for node, what in _outside_uses(method):
            yield Warning(
                f"{definition.workflow_name}: {method.name} uses {what} "
                f"({file}:{first_line + node.lineno - 1}). A plan is made once and stored: what it "
                "reads from outside is not read again when the task goes on.",
                hint="Let a step read it, and plan on the step's result.",
                id="tasks_app.W013",
            )
        for node in _approvals_without_deadline(method):
            yield Error(
                f"{definition.workflow_name}: an approval has no deadline "
                f"({file}:{first_line + node.lineno - 1}).",
                id="tasks_app.E014",
            )


def _source_of(definition: type[Any]) -> tuple[ast.ClassDef, str, int] | None:
    """Return the class as a tree, its file and first line; None for code without a file."""
    try:
        lines, first_line = inspect.getsourcelines(definition)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    if not tree.body or not isinstance(tree.body[0], ast.ClassDef):
        return None
    return tree.body[0], inspect.getsourcefile(definition) or "?", first_line


def _is_declared(method: ast.FunctionDef) -> bool:
    return any(
        isinstance(mark, ast.Call) and _dotted(mark.func).rpartition(".")[2] in _DECORATORS
        for mark in method.decorator_list
    )


def _check_twice(
    definition: type[Workflow[Any, Any]], declared: list[ast.FunctionDef]
) -> Iterator[CheckMessage]:
    names = [method.name for method in declared]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Error(
            f"{definition.workflow_name}.{name} is declared twice; Python keeps the last one.",
            id="tasks_app.E010",
        )


def _outside_uses(method: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    for node in ast.walk(method):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            parts = name.split(".")
            if parts[0] in _MODULES or name in _CALLS or ".".join(parts[-2:]) in _CALLS:
                yield node, name
        elif isinstance(node, ast.Attribute) and node.attr == "objects":
            yield node, _dotted(node)


def _approvals_without_deadline(method: ast.FunctionDef) -> Iterator[ast.Call]:
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "approval"
            and all(keyword.arg not in {"deadline", None} for keyword in node.keywords)
        ):
            yield node


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` as text; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted(value)
            return f"{before}.{name}" if before else name
        case _:
            return ""
