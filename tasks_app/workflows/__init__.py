"""Everything an author of a workflow imports."""

from tasks_app.workflows.definition import (
    Budget,
    CheckpointPolicy,
    Collect,
    Estimate,
    McpTool,
    Question,
    Retry,
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
from tasks_app.workflows.inline import InlineTool, inline_tool
from tasks_app.workflows.migrating import MigrationBuilder, OldPlan, migrates
from tasks_app.workflows.planning import PlanBuilder, StepRef
from tasks_app.workflows.registry import workflow
from tasks_app.workflows.step_context import StepContext
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
    ModelFailedError,
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
    "InlineTool",
    "ItemError",
    "ItemList",
    "MapItem",
    "MapResults",
    "McpTool",
    "MigrationBuilder",
    "ModelFailedError",
    "NotApprovedError",
    "NotDeliverableError",
    "OldPlan",
    "PlanBuilder",
    "Question",
    "Retry",
    "Scope",
    "StepContext",
    "StepFailedError",
    "StepRef",
    "Turn",
    "Workflow",
    "durable_function",
    "effect",
    "inline_tool",
    "migrates",
    "step",
    "workflow",
]
