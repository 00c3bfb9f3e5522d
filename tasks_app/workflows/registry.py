"""Name → definition. Filled by `durable.py` modules when the project starts."""

from collections.abc import Callable
from typing import Any

from tasks_app import conf
from tasks_app.domain.errors import ConfigurationError, UnknownWorkflowError
from tasks_app.workflows import declarations
from tasks_app.workflows.definition import McpTool, StepDefinition, Workflow, WorkflowInfo

# Workflows of this name exist for deterministic tests and are offered only when asked for.
TEST_WORKFLOWS = frozenset({"scripted", "scripted.loop"})

_known: dict[str, type[Workflow[Any, Any]]] = {}


def workflow(
    *,
    name: str,
    version: int,
    title: str = "",
    description: str = "",
    acts: tuple[str, ...] = (),
    compatible_with: tuple[int, ...] = (),
    mcp: McpTool | None = None,
) -> Callable[[type[Workflow[Any, Any]]], type[Workflow[Any, Any]]]:
    """Register a class as a workflow.

    Args:
        compatible_with: other versions whose live tasks may go on under this code with the plan
            they have, whatever this version would plan; see docs/how-to/deploy-a-new-version.md.
        mcp: how MCP clients see it.

    Raises:
        ConfigurationError: the declaration breaks a rule (E12); the project does not start.
    """

    def register(definition: type[Workflow[Any, Any]]) -> type[Workflow[Any, Any]]:
        definition.workflow_name = name
        definition.version = version
        definition.title = title or name
        definition.description = description
        definition.acts = acts
        definition.compatible_with = compatible_with
        definition.mcp = mcp or McpTool()
        add(definition)
        return definition

    return register


def add(definition: type[Workflow[Any, Any]]) -> None:
    """Register a definition after checking its declarations (E12)."""
    declarations.check(definition)
    name = definition.workflow_name
    known = _known.get(name)
    if known is not None and _identity(known) != _identity(definition):
        places = " and ".join(declarations.place_of(found) for found in (known, definition))
        raise ConfigurationError(f"two workflows are called {name}: {places}")
    _known[name] = definition


def _identity(definition: type[Workflow[Any, Any]]) -> tuple[str, str]:
    """Return what stays the same when a module is loaded again."""
    return definition.__module__, definition.__qualname__


def find_definition(name: str) -> type[Workflow[Any, Any]] | None:
    """Return the definition that is installed and enabled here, in whatever version."""
    definition = _known.get(name)
    return definition if definition is not None and _enabled(name) else None


def get_definition(name: str) -> type[Workflow[Any, Any]]:
    """Return the definition.

    Raises:
        UnknownWorkflowError: not registered, or not enabled here.
    """
    definition = find_definition(name)
    if definition is None:
        raise UnknownWorkflowError(f"There is no workflow called {name}.", workflow=name)
    return definition


def get_workflow(name: str) -> WorkflowInfo:
    """Return one workflow for lists and forms; raises UnknownWorkflowError."""
    return _info(get_definition(name))


def registered() -> list[type[Workflow[Any, Any]]]:
    """Return every definition, also of workflows that are not enabled here."""
    return [_known[name] for name in sorted(_known)]


def list_workflows() -> list[WorkflowInfo]:
    """Return the enabled workflows by name."""
    return [_info(_known[name]) for name in sorted(_known) if _enabled(name)]


def effects(definition: type[Workflow[Any, Any]]) -> list[StepDefinition]:
    """Return a workflow's acts on the outside world."""
    return [step for step in definition.declared_steps() if step.kind == "effect"]


def effect_names(definition: type[Workflow[Any, Any]]) -> frozenset[str]:
    """Return the names of a workflow's acts on the outside world."""
    return frozenset(act.name for act in effects(definition))


def _enabled(name: str) -> bool:
    return name not in TEST_WORKFLOWS or conf.runtime().test_assistant


def _info(definition: type[Workflow[Any, Any]]) -> WorkflowInfo:
    return WorkflowInfo(
        name=definition.workflow_name,
        version=definition.version,
        title=definition.title,
        description=definition.description,
        acts=definition.acts,
        effects=tuple(act.name for act in effects(definition)),
        approve_before=definition.approve_before,
        definition=definition,
        schema=_goal_schema(definition),
    )


def _goal_schema(definition: type[Workflow[Any, Any]]) -> dict[str, Any]:
    """Return the goal's schema with its fields on top; a model that names itself is a reference."""
    schema = definition.goal_type().model_json_schema()
    reference = schema.pop("$ref", "")
    named: dict[str, Any] = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return {**named, **schema}


def forget(name: str) -> None:
    """Drop a definition: for tests that register one of their own."""
    _known.pop(name, None)
