"""Carrying a live task from one version of its workflow to the next: `@migrates("name", 3, 4)`.

A migration is pure, like `plan`: it reads the old plan and builds the new one. Finished steps keep
their results where the new plan has them with the same signature, above all those that it keeps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows.definition import Workflow
from tasks_app.workflows.planning import Plan, PlanBuilder, PlannedStep, StepRef, gated_effects
from tasks_app.workflows.values import Finished


@dataclass(frozen=True, slots=True)
class OldPlan:
    """What a migration reads: the plan as it was stored, and the facts of the task.

    Attributes:
        version: of the workflow that made this plan.
        goal: JSON data in the shape of that version.
        steps: the whole plan in order, as data.
        done: results of its finished steps by key, read when asked for.
        variables: small facts of the cursor, such as the next item of an open map.
    """

    version: int
    goal: Mapping[str, Any]
    steps: tuple[PlannedStep, ...]
    done: Mapping[str, Any]
    variables: Mapping[str, Any]


class MigrationBuilder(PlanBuilder):
    """The `p` of a migration: plans steps as `plan` does, keeps old ones, may change the goal."""

    def __init__(self, workflow: str, approve_before: frozenset[str], old: OldPlan) -> None:
        super().__init__(workflow, approve_before)
        self._old = {step.key: step for step in old.steps}
        self.goal: Mapping[str, Any] = old.goal

    def keep(self, key: str) -> StepRef:
        """Take a step of the old plan over as it is, after the steps that it takes results from.

        Raises:
            ConfigurationError: there is no such step, or one of those is not planned yet.
        """
        if key not in self._old:
            raise ConfigurationError(f"{key} is not a step of the old plan")
        step = replace(self._old[key], position=len(self._steps))
        for needed in step.references():
            if needed not in self._steps:
                raise ConfigurationError(f"{key} needs {needed}: keep or plan that before")
        self._take(step)
        return StepRef(key)

    def change_goal(self, goal: Mapping[str, Any]) -> None:
        """Store this goal, in the shape of the new version, instead of the old one."""
        self.goal = dict(goal)


Migration = Callable[[OldPlan, MigrationBuilder], Any]
_Register = Callable[[Migration], Migration]

_known: dict[tuple[str, int], dict[int, Migration]] = {}


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a chain of migrations made of a task."""

    plan: Plan
    goal: Mapping[str, Any]


def migrates(name: str, source: int, target: int) -> _Register:
    """Register a function that turns a plan of one version into one of a later version.

    It is called as `migration(old, p)`, plans through `p` and returns what `plan` would: the
    task's result. The engine follows a chain (3 to 4, 4 to 5) to the installed version.

    Raises:
        ConfigurationError: the versions do not rise, or the pair has a migration already.
    """
    if not 0 < source < target:
        raise ConfigurationError(f"{name}: a migration goes from a version to a later one")
    routes = _known.setdefault((name, source), {})

    def register(migration: Migration) -> Migration:
        known = routes.get(target)
        if known is not None and known.__qualname__ != migration.__qualname__:
            raise ConfigurationError(f"{name}: two migrations from {source} to {target}")
        routes[target] = migration
        return migration

    return register


def find_route(name: str, source: int, target: int) -> list[tuple[int, Migration]]:
    """Return the migrations from one version to another with the version each leads to, or none.

    Of two ways on, the longer step is taken.
    """
    route: list[tuple[int, Migration]] = []
    at = source
    while at < target:
        onward = [version for version in _known.get((name, at), {}) if version <= target]
        if not onward:
            return []
        route.append((max(onward), _known[name, at][max(onward)]))
        at = max(onward)
    return route


def migrate(
    definition: type[Workflow[Any, Any]],
    route: list[tuple[int, Migration]],
    old: OldPlan,
    before: list[str],
) -> Migrated:
    """Follow a route; each migration reads what the one before it has built.

    Args:
        before: names of effects that this task wants approved, besides the workflow's own.
    """
    plan = Plan(old.steps, {"v": None})
    for version, migration in route:
        builder = MigrationBuilder(definition.workflow_name, gated_effects(definition, before), old)
        plan = builder.build(migration(old, builder))
        signatures = {step.key: step.signature for step in old.steps}
        kept = [s.key for s in plan.steps if signatures.get(s.key) == s.signature]
        old = OldPlan(
            version=version,
            goal=builder.goal,
            steps=plan.steps,
            done=Finished([key for key in kept if key in old.done], old.done.__getitem__),
            variables=old.variables,
        )
    return Migrated(plan, old.goal)
