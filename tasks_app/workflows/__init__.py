"""Everything an author of a workflow imports."""

from tasks_app.workflows.definition import (
    Budget,
    CheckpointPolicy,
    Collect,
    Retry,
    StepContext,
    Workflow,
    effect,
    step,
)
from tasks_app.workflows.planning import PlanBuilder, StepRef
from tasks_app.workflows.registry import workflow
from tasks_app.workflows.values import (
    ApprovalOutcome,
    ArtifactRef,
    EffectNotDoneError,
    Found,
    GoalError,
    ItemError,
    ItemList,
    MapItem,
    MapResults,
)

__all__ = [
    "ApprovalOutcome",
    "ArtifactRef",
    "Budget",
    "CheckpointPolicy",
    "Collect",
    "EffectNotDoneError",
    "Found",
    "GoalError",
    "ItemError",
    "ItemList",
    "MapItem",
    "MapResults",
    "PlanBuilder",
    "Retry",
    "StepContext",
    "StepRef",
    "Workflow",
    "effect",
    "step",
    "workflow",
]
