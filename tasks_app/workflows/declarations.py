"""What a declaration must be before its workflow is known: names, numbers, types (E12).

Rows, pages and addresses rely on it, so that a wrong one is refused where it is written. Whatever
needs the settings, every module or the author's source stands in `checks`.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from django.utils.functional import Promise
from pydantic.errors import PydanticUserError

from ledger_app.domain.effects import EffectKind
from tasks_app.domain.budgets import check_amounts
from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows.definition import (
    Budget,
    CheckpointPolicy,
    Estimate,
    Retry,
    StepDefinition,
    Workflow,
)

NAME_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_VERSION_MAX = 2**31 - 1
# Methods that the engine calls itself.
_HOOKS = frozenset({"check", "plan", "replan"})
# Whose lines lead to a declaration without being one.
_NOT_AUTHORS = frozenset({"django", "importlib", "pydantic", "typing"})


class DeclarationError(ConfigurationError):
    """A workflow is declared wrongly: the project does not start. Fields tell where it stands."""


def check(definition: type[Workflow[Any, Any]]) -> None:
    """Refuse a declaration that breaks a rule.

    Raises: ConfigurationError names the workflow and the first thing that is wrong.
    """
    for problem in _problems(definition):
        raise ConfigurationError(f"{definition.workflow_name}: {problem}")


def place_of(definition: type[Workflow[Any, Any]]) -> str:
    """Return file and line of a workflow's code, as far as they are known."""
    code: Any = getattr(definition, "function", definition)
    try:
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):
        return f"{definition.__module__}.{definition.__qualname__}"


def blame(error: ConfigurationError) -> DeclarationError:
    """Return the error with the line of the author's code that led to it."""
    place = ""
    step = error.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _NOT_AUTHORS and not module.startswith(__package__):
            place = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return DeclarationError(error.message, place=place)


def _problems(definition: type[Workflow[Any, Any]]) -> Iterator[str]:
    yield from _name_problems(definition)
    yield from _goal_problems(definition)
    yield from _limit_problems(definition)
    steps = definition.declared_steps()
    names = [step.name for step in steps]
    for step in steps:
        if names.count(step.name) > 1:
            yield f"two steps are called {step.name}"
        if step.name in _HOOKS:
            yield f"a step cannot be called {step.name}"
        yield from (f"{step.name}: {problem}" for problem in _step_problems(definition, step))
    acts = {step.name for step in steps if step.kind == "effect"}
    missing = sorted(set(definition.approve_before) - acts)
    if missing:
        yield f"approve_before names no effect: {', '.join(missing)}"


def _name_problems(definition: type[Workflow[Any, Any]]) -> Iterator[str]:
    name: object = definition.workflow_name
    version: object = definition.version
    if not isinstance(name, str) or len(name) > NAME_MAX or not _NAME.fullmatch(name):
        yield (
            f"a name has letters, digits, dots, _ and - (not at its ends . or -), at most "
            f"{NAME_MAX}: {name!r}"
        )
    if not _is_version(version):
        yield f"version must be a whole number from 1 on: {version!r}"
    for field in ("title", "description"):
        if not isinstance(getattr(definition, field), str | Promise):
            yield f"{field} must be a text"
    for field in ("acts", "approve_before"):
        found = getattr(definition, field)
        if not _is_sequence(found) or not all(isinstance(item, str | Promise) for item in found):
            yield f'{field} must be a tuple of texts, as ("send",): {found!r}'
            # What follows would take it to pieces.
            return
    versions = definition.compatible_with
    if not _is_sequence(versions) or not all(_is_version(item) for item in versions):
        yield f"compatible_with must be a tuple of versions, as (2,): {versions!r}"
    elif version in versions:
        yield "compatible_with names other versions than its own"


def _goal_problems(definition: type[Workflow[Any, Any]]) -> Iterator[str]:
    try:
        schema = definition.goal_type().model_json_schema()
    except PydanticUserError as error:
        yield f"the goal has no JSON schema: {str(error).splitlines()[0]}"
        return
    if "properties" not in schema and schema.get("type") != "object" and "$ref" not in schema:
        yield "the goal must be an object with fields"
    for hook in sorted(_HOOKS):
        if inspect.iscoroutinefunction(getattr(definition, hook)):
            yield f"{hook} must be a plain method, not async"


def _limit_problems(definition: type[Workflow[Any, Any]]) -> Iterator[str]:
    if not isinstance(definition.budget, Budget):
        yield "budget must be a Budget"
    else:
        for problem in check_amounts(definition.budget.limits(), "budget"):
            yield f"{problem.pointer.replace('/', '.')} must be a whole number from 0 on"
    policy = definition.checkpoint
    if not isinstance(policy, CheckpointPolicy):
        yield "checkpoint must be a CheckpointPolicy"
    elif not (_is_number(policy.every_steps, 1) and _is_number(policy.max_seconds, 0)):
        yield "checkpoint must have every_steps from 1 on and max_seconds from 0 on"


def _step_problems(definition: type[Workflow[Any, Any]], step: StepDefinition) -> Iterator[str]:
    if not isinstance(step.title, str | Promise):
        yield "title must be a text"
    retry = step.retry
    if not isinstance(retry, Retry):
        yield "retry must be a Retry"
    elif not (
        _is_count(retry.max, 1)
        and _is_number(retry.first_seconds, 0)
        and _is_number(retry.max_seconds, 0)
    ):
        yield "retry must have max from 1 on and seconds from 0 on"
    if not _is_number(step.timeout_seconds, 0) or step.timeout_seconds == 0:
        yield f"timeout_seconds must be above 0: {step.timeout_seconds!r}"
    if step.estimate is not None and not isinstance(step.estimate, Estimate):
        yield "estimate must be an Estimate"
    elif step.estimate is not None and check_amounts(step.estimate.amounts(), "estimate"):
        yield "estimate must have whole numbers from 0 on"
    if step.kind == "effect":
        yield from _effect_problems(definition, step)


def _effect_problems(definition: type[Workflow[Any, Any]], act: StepDefinition) -> Iterator[str]:
    if act.effect_kind not in frozenset(EffectKind):
        known = ", ".join(kind.value for kind in EffectKind)
        yield f"effect kind must be one of {known}: {act.effect_kind!r}"
    if bool(act.find) != (act.effect_kind == EffectKind.QUERYABLE):
        yield "a queryable effect names its find, no other does"
    if isinstance(act.find, str) and act.find and not callable(getattr(definition, act.find, None)):
        yield f"find names no method: {act.find}"
    if act.unattended and act.effect_kind != EffectKind.OPAQUE:
        yield "only an opaque effect is declared unattended"
    if act.compensate:
        acts = {step.name: step for step in definition.declared_steps() if step.kind == "effect"}
        undoes = acts.get(act.compensate)
        if undoes is None:
            yield f"compensate names no effect: {act.compensate}"
        elif undoes.compensate:
            yield f"what undoes is not undone itself: {act.compensate}"


def _is_sequence(value: object) -> bool:
    return isinstance(value, tuple | list)


def _is_version(value: object) -> bool:
    return _is_count(value, 1) and value <= _VERSION_MAX  # type: ignore[operator]


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least
