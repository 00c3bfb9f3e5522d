"""Name → definition. Filled by `durable.py` modules when the project starts."""

from collections.abc import Callable
from typing import Any

from ledger_app.domain.effects import EffectKind
from tasks_app import conf
from tasks_app.domain.errors import ConfigurationError, UnknownWorkflowError
from tasks_app.workflows.definition import StepDefinition, Workflow, WorkflowInfo

# Workflows of this name exist for deterministic tests and are offered only when asked for.
TEST_WORKFLOWS = frozenset({"scripted", "scripted.loop"})

# Methods that the engine calls itself.
_HOOKS = frozenset({"check", "plan", "replan"})
_known: dict[str, type[Workflow[Any, Any]]] = {}


def workflow(
    *,
    name: str,
    version: int,
    title: str = "",
    description: str = "",
    acts: tuple[str, ...] = (),
    compatible_with: tuple[int, ...] = (),
) -> Callable[[type[Workflow[Any, Any]]], type[Workflow[Any, Any]]]:
    """Register a class as a workflow.

    Args:
        compatible_with: other versions whose live tasks may go on under this code with the plan
            they have, whatever this version would plan; see docs/how-to/deploy-a-new-version.md.

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
        add(definition)
        return definition

    return register


def add(definition: type[Workflow[Any, Any]]) -> None:
    """Register a definition after checking its declarations (E12)."""
    name = definition.workflow_name
    known = _known.get(name)
    if known is not None and known.__qualname__ != definition.__qualname__:
        raise ConfigurationError(f"two workflows are called {name}")
    definition.goal_type()
    if definition.version in definition.compatible_with:
        raise ConfigurationError(f"{name}: compatible_with names other versions than its own")
    steps = definition.declared_steps()
    for step in steps:
        if sum(other.name == step.name for other in steps if other is not step):
            raise ConfigurationError(f"{name}: two steps are called {step.name}")
        if step.name in _HOOKS:
            raise ConfigurationError(f"{name}: a step cannot be called {step.name}")
        if step.kind == "effect":
            _check_effect(definition, step)
    missing = set(definition.approve_before) - effect_names(definition)
    if missing:
        raise ConfigurationError(f"{name}: approve_before names no effect: {sorted(missing)}")
    _known[name] = definition


def _check_effect(definition: type[Workflow[Any, Any]], act: StepDefinition) -> None:
    name, kinds = f"{definition.workflow_name}.{act.name}", frozenset(EffectKind)
    if act.effect_kind not in kinds:
        raise ConfigurationError(f"{name}: effect kind must be one of {sorted(kinds)}")
    if bool(act.find) != (act.effect_kind == EffectKind.QUERYABLE):
        raise ConfigurationError(f"{name}: a queryable effect names its find, no other does")
    if isinstance(act.find, str) and act.find and not callable(getattr(definition, act.find, None)):
        raise ConfigurationError(f"{name}: find names no method: {act.find}")
    if act.compensate:
        _check_compensation(definition, name, act.compensate)
    if act.unattended and act.effect_kind != EffectKind.OPAQUE:
        raise ConfigurationError(f"{name}: only an opaque effect is declared unattended")


def _check_compensation(definition: type[Workflow[Any, Any]], name: str, compensation: str) -> None:
    found = {act.name: act for act in effects(definition)}.get(compensation)
    if found is None:
        raise ConfigurationError(f"{name}: compensate names no effect: {compensation}")
    if found.compensate:
        raise ConfigurationError(f"{name}: what undoes is not undone itself: {compensation}")


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
        approve_before=definition.approve_before,
        definition=definition,
        schema=definition.goal_type().model_json_schema(),
    )


def forget(name: str) -> None:
    """Drop a definition: for tests that register one of their own."""
    _known.pop(name, None)
