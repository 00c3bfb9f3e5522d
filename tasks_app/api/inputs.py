"""What bodies and queries may hold: nothing else gets past the door."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field

from tasks_app.admission.keys import DEFAULT_DAYS, MAX_DAYS, MAX_REASON_CHARACTERS
from tasks_app.api.base import Input
from tasks_app.domain.budgets import MAX_AMOUNT
from tasks_app.domain.repairs import BULK_MAX, RepairVerb
from tasks_app.domain.steering import CommandType

WholeNumber = Annotated[int, Field(strict=True)]
Amount = Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]
Text = Annotated[str, Field(strict=True)]
Reason = Annotated[
    str,
    Field(
        strict=True,
        min_length=1,
        max_length=MAX_REASON_CHARACTERS,
        description="Why; kept in the audit record.",
    ),
]
ExpectedVersion = Annotated[
    WholeNumber | None,
    Field(ge=1, description="The version the caller saw. Missing: 428. Stale: 409."),
]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time that no calendar has") from None


# PostgreSQL knows fewer offsets than RFC 3339.
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class CheckpointPolicyInput(Input):
    """When checkpoints are written, whichever comes first."""

    every_steps: WholeNumber | None = Field(None, ge=1, le=10_000)
    max_seconds: WholeNumber | None = Field(None, ge=1, le=86_400)


class ApprovalPolicyInput(Input):
    """Acts that need a person's approval, besides those the workflow names itself."""

    before: list[Annotated[Text, Field(min_length=1, max_length=128)]] = Field(
        default_factory=list, max_length=50
    )


class BudgetInput(Input):
    """Limits of a task; the workflow's own limits stay. `active_seconds` is read like `activeSeconds`."""

    # The kinds are called so wherever they are values: in limits, events and errors.
    model_config = ConfigDict(populate_by_name=True)

    steps: Amount | None = None
    active_seconds: Amount | None = None
    tool_calls: Amount | None = None
    tokens: Amount | None = None
    money_micros: Amount | None = Field(None, description="Millionths of the tenant's currency.")


class TaskInput(Input):
    """A task to start."""

    workflow: Text = Field(min_length=1, max_length=100, description="A name of /workflows.")
    goal: dict[str, Any] = Field(description="What to do; its schema is the workflow's.")
    title: Text | None = Field(None, min_length=1, max_length=200)
    priority: WholeNumber = Field(5, ge=0, le=9, description="0 first, 9 last.")
    checkpoint_policy: CheckpointPolicyInput | None = None
    approval_policy: ApprovalPolicyInput | None = None
    budget: BudgetInput | None = None
    thread_id: UUID | None = None
    webhook: Text | None = Field(
        None, min_length=1, max_length=2000, description="Who is told of its end and its questions."
    )


def _payload_of(types: tuple[CommandType, ...], **schema: Any) -> Any:
    """Return the schema of commands whose payload is an object of this form."""
    payload = {"type": "object", **schema}
    return {
        "properties": {
            "type": {"anyOf": [{"const": str(name)} for name in types]},
            "payload": payload,
        },
        # Left out it is an empty object, which only some commands take.
        **({} if schema.get("maxProperties") == 0 else {"required": ["payload"]}),
    }


_PAYLOADS = [
    _payload_of(
        (CommandType.PAUSE, CommandType.RESUME, CommandType.CANCEL),
        maxProperties=0,
        description="Nothing.",
    ),
    _payload_of(
        (CommandType.ADJUST_GOAL,),
        minProperties=1,
        description="A JSON merge patch (RFC 7396) of the goal itself: the fields to change, "
        "null for those to remove. The merged goal has to fit the workflow's schema.",
    ),
    _payload_of(
        (CommandType.PROVIDE_INPUT,),
        properties={"answer": {"description": "Fits the schema of the open question."}},
        required=["answer"],
        additionalProperties=False,
    ),
    _payload_of(
        (CommandType.SET_PRIORITY,),
        properties={"priority": {"type": "integer", "minimum": 0, "maximum": 9}},
        required=["priority"],
        additionalProperties=False,
    ),
]


class CommandInput(Input):
    """An instruction to a live task; applied at a safe point."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _PAYLOADS})

    dry_run: bool = Field(
        False, strict=True, description="Only tell what adjust_goal would do to the plan."
    )
    type: CommandType
    command_id: UUID | None = Field(None, description="Made by the client; makes a retry safe.")
    payload: dict[str, Any] = Field(default_factory=dict, description="Depends on `type`: `oneOf`.")
    expected_version: ExpectedVersion = None
    reason: Reason


class RepairInput(Input):
    """What to do with a held task."""

    verb: RepairVerb
    repair_id: UUID | None = Field(None, description="Made by the client; makes a retry safe.")
    payload: dict[str, Any] = Field(
        default_factory=dict,
        description="continue_from: `checkpoint`. settle_effect: `outcome` (done, not_done, "
        "call_again), `effect`, `proof`, `result`, `hold`. fork: `goal`, a merge patch.",
    )
    expected_version: ExpectedVersion = None
    reason: Reason


class RepairTarget(Input):
    """One task of many, at the version that the preview showed."""

    task_id: UUID
    expected_version: ExpectedVersion = None
    title: Text | None = Field(None, max_length=200, description="Of the preview; not read.")


class RepairManyInput(Input):
    """One verb for many held tasks; a preview (`dryRun`) names them."""

    verb: RepairVerb
    cause: Text = Field(
        "", max_length=64, description="For a preview: tasks held for this code, at most 500."
    )
    dry_run: bool = Field(False, strict=True, description="Change nothing; answer what would be.")
    tasks: list[RepairTarget] = Field(
        default_factory=list, max_length=BULK_MAX, description="What the preview listed."
    )
    bulk_id: UUID | None = Field(None, description="Made by the client; makes a retry safe.")
    payload: dict[str, Any] = Field(default_factory=dict, description="As for one task.")
    reason: Text = Field("", max_length=MAX_REASON_CHARACTERS, description="Why; not in a preview.")


class DecisionInput(Input):
    """One person's answer to one approval, bound to what the person was shown."""

    decision: Literal["approve", "deny"]
    args_sha256: Text | None = Field(
        None, max_length=64, description="The digest that was shown. Missing or other: 409."
    )
    expected_version: ExpectedVersion = None
    reason: Reason


class KeyInput(Input):
    """An API key to make; it is never wider than its maker."""

    name: Text = Field(min_length=1, max_length=100)
    scopes: list[Text] = Field(min_length=1, max_length=40)
    days: WholeNumber = Field(DEFAULT_DAYS, ge=1, le=MAX_DAYS)
    allowed_cidrs: list[Text] = Field(default_factory=list, max_length=20)
    owner_agent: UUID | None = Field(None, description="An agent that acts for you by this key.")


class RotateInput(Input):
    """How long the new key lives."""

    days: WholeNumber = Field(DEFAULT_DAYS, ge=1, le=MAX_DAYS)


class LimitInput(Input):
    """A limit of the tenant or of one of its agents; null lifts it."""

    OWN_KEYS = frozenset({"agentId"})

    kind: Literal["steps", "active_seconds", "tool_calls", "tokens", "money_micros"]
    limit: Amount | None
    period: Literal["", "day", "month"] = Field("", description="In UTC; empty never starts anew.")
    agent_id: UUID | None = None
    reason: Reason


class PriceInput(Input):
    """What a million units of a model or tool cost, in millionths of the tenant's currency."""

    subject: Text = Field(min_length=1, max_length=128, description="Name of the model or tool.")
    unit: Literal["input_token", "output_token", "call"]
    micros_per_million: Amount
    reason: Reason


class ScheduleInput(Input):
    """A workflow to start at times: by a cron expression, or every so many seconds."""

    name: Text = Field(min_length=1, max_length=100)
    workflow: Text = Field(min_length=1, max_length=100, description="A name of /workflows.")
    goal: dict[str, Any] = Field(description="What to do; its schema is the workflow's.")
    title: Text = Field("", max_length=200)
    priority: WholeNumber = Field(5, ge=0, le=9, description="0 first, 9 last.")
    budget: BudgetInput | None = None
    cron: Text = Field("", max_length=100, description="Five fields, as cron has them.")
    interval_seconds: WholeNumber | None = Field(None, ge=1, le=366 * 24 * 3600)
    time_zone: Text = Field("UTC", min_length=1, max_length=64)
    overlap: Literal["skip", "queue", "cancel_previous"] = "skip"
    catch_up_limit: WholeNumber = Field(
        1, ge=0, le=100, description="How many missed times are made up for, the newest of them."
    )
    jitter_seconds: WholeNumber = Field(0, ge=0, le=3600)


class WebhookInput(Input):
    """An address that is told of tasks."""

    url: Text = Field(min_length=1, max_length=2000, description="Without a query.")
    all_tasks: bool = Field(
        True, strict=True, description="False: only of tasks that name it as their webhook."
    )


class ReasonInput(Input):
    """An act that only needs a reason."""

    reason: Reason
