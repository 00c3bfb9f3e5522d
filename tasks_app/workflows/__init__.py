"""Everything an author of a workflow imports."""

from tasks_app.workflows.definition import (
    Budget,
    CheckpointPolicy,
    Collect,
    Estimate,
    Retry,
    StepContext,
    Workflow,
    effect,
    step,
)
from tasks_app.workflows.functions import (
    Ask,
    FunctionContext,
    FunctionWorkflow,
    Scope,
    Turn,
    durable_function,
)
from tasks_app.workflows.migrating import MigrationBuilder, OldPlan, migrates
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
    NotApprovedError,
    NotDeliverableError,
    StepFailedError,
)

__all__ = [
    "ApprovalOutcome",
    "ArtifactRef",
    "Ask",
    "Budget",
    "CheckpointPolicy",
    "Collect",
    "EffectNotDoneError",
    "Estimate",
    "Found",
    "FunctionContext",
    "FunctionWorkflow",
    "GoalError",
    "ItemError",
    "ItemList",
    "MapItem",
    "MapResults",
    "MigrationBuilder",
    "NotApprovedError",
    "NotDeliverableError",
    "OldPlan",
    "PlanBuilder",
    "Retry",
    "Scope",
    "StepContext",
    "StepFailedError",
    "StepRef",
    "Turn",
    "Workflow",
    "durable_function",
    "effect",
    "migrates",
    "step",
    "workflow",
]
