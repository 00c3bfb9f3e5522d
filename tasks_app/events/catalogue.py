"""Types of events and the shapes of their data: what is stored, and the light form that is pushed.

docs/reference/events.md is written from this module and compared with it by a test. Nothing here
sends or stores.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NotRequired, TypedDict, get_type_hints
from uuid import UUID

# A pushed event is a hint to look again, never a document (mission M8, ux U10).
MAX_PUSHED_BYTES = 1024


class EventType(StrEnum):
    """What a stored event of a task can be."""

    SNAPSHOT = "task.snapshot"
    STATUS = "status"
    PROGRESS = "progress"
    LOG = "log"
    ARTIFACT = "artifact"
    MESSAGE = "message"
    VALUES = "values"
    CHECKPOINT = "checkpoint"
    STEERING_APPLIED = "steering.applied"
    REPAIRED = "repaired"
    INPUT_REQUIRED = "input_required"
    BUDGET = "budget"
    CHILD = "child"
    MODEL_ERROR = "model_error"
    DELIVERY = "delivery"
    TERMINAL = "terminal"


class TenantHint(StrEnum):
    """Names of the events on a tenant's channels; never stored, no `seq`."""

    # The list of tasks may have changed; at most one a task in two seconds.
    TASK = "task"
    # The open questions may have changed.
    INBOX = "inbox"


class StreamNotice(StrEnum):
    """What a stream says about itself; never stored, no `seq`."""

    # The stream listens from here on.
    OPEN = "stream-open"
    # Events were lost between Redis and this stream: read the snapshot.
    RESYNC = "resync"
    # The stream has lived long enough: open a new one, nothing is wrong.
    RECONNECT = "reconnect"
    # The stream ends and a new one would end too; the reason is in `condition`.
    ERROR = "stream-error"


# Types after which an open question may have appeared or gone: the tenant's inbox hears of them.
INBOX_TYPES = frozenset(
    {
        EventType.STATUS,
        EventType.STEERING_APPLIED,
        EventType.INPUT_REQUIRED,
        EventType.TERMINAL,
    }
)


class SnapshotData(TypedDict):
    """Execution (re)started here, for example after a recovery: read the snapshot."""

    reason: str


class StatusData(TypedDict):
    """The task moved along one edge of the state table."""

    source: str
    target: str
    reason: NotRequired[str]


class ProgressData(TypedDict):
    """How far the task is: `progress` is 0 to 1, or null while the total is unknown."""

    progress: float | None
    phase: str


class LogData(TypedDict):
    """One line for people, redacted before it is stored; `facts` are short values."""

    message: str
    facts: NotRequired[Mapping[str, object]]


class ArtifactData(TypedDict):
    """An output exists; its bytes are read by reference."""

    name: str
    uri: str
    sha256: str
    sizeBytes: int
    mediaType: str


class MessageData(TypedDict):
    """A message joined the conversation: of a person, the task or a tool; `step` said it."""

    id: str
    type: str
    content: object
    name: NotRequired[str]
    toolCalls: NotRequired[list[Mapping[str, object]]]
    toolCallId: NotRequired[str]
    additionalKwargs: NotRequired[Mapping[str, object]]
    step: NotRequired[str]


class ValuesData(TypedDict):
    """Named values of the thread changed; what is not named stays."""

    values: Mapping[str, object]
    step: NotRequired[str]


class CheckpointData(TypedDict):
    """Work up to here survives a crash; `checkpoint` is its number in the task."""

    checkpoint: int


class BudgetData(TypedDict):
    """So much of a limit of the task is used: `percent` is 80 or 100."""

    kind: str
    percent: int
    spent: int
    limit: int


class SteeringAppliedData(TypedDict):
    """A command took effect, or was refused, at a safe point."""

    commandId: str
    command: str
    outcome: str


class RepairedData(TypedDict):
    """A person repaired the task while it was held; the snapshot tells where it stands now."""

    repairId: str
    verb: str
    reason: str


class InputRequiredData(TypedDict):
    """The task waits for a person; `approvalId` is set when an approval is asked for."""

    reason: str
    approvalId: NotRequired[str]


class ChildData(TypedDict):
    """A child was `started`, is `running`, or ended as `completed`, `failed`, `cancelled` or `timed_out`."""

    status: str
    executionId: str
    externalId: str
    workflow: str
    step: str
    message: NotRequired[str]
    resultSha256: NotRequired[str]
    tokenUsage: NotRequired[Mapping[str, int]]


class ModelErrorData(TypedDict):
    """A model gave up: what it said instead of an answer."""

    message: str
    model: str
    step: str


class DeliveryData(TypedDict):
    """The receipt of a run: what it made and handed over; `satisfied` when nothing was kept back."""

    outcome: str
    presented: int
    paths: list[str]
    byTool: Mapping[str, int]
    producedPaths: list[str]
    matchedPaths: list[str]
    satisfied: bool
    sha256: Mapping[str, str]
    effects: list[Mapping[str, str]]


class TerminalData(TypedDict):
    """The task has ended; nothing follows."""

    status: str
    receiptId: NotRequired[str]


DATA_SHAPES: Mapping[EventType, type] = {
    EventType.SNAPSHOT: SnapshotData,
    EventType.STATUS: StatusData,
    EventType.PROGRESS: ProgressData,
    EventType.LOG: LogData,
    EventType.ARTIFACT: ArtifactData,
    EventType.MESSAGE: MessageData,
    EventType.VALUES: ValuesData,
    EventType.CHECKPOINT: CheckpointData,
    EventType.BUDGET: BudgetData,
    EventType.STEERING_APPLIED: SteeringAppliedData,
    EventType.REPAIRED: RepairedData,
    EventType.INPUT_REQUIRED: InputRequiredData,
    EventType.CHILD: ChildData,
    EventType.MODEL_ERROR: ModelErrorData,
    EventType.DELIVERY: DeliveryData,
    EventType.TERMINAL: TerminalData,
}


class PushedForm(TypedDict):
    """The data of every event on a task's stream."""

    seq: int
    type: str
    progress: float | None
    phase: str
    version: int


class SnapshotForm(PushedForm):
    """The data of the `task.snapshot` that a stream begins with."""

    status: str


class TenantForm(TypedDict):
    """The data of `task` and `inbox`: which task to look at again.

    Empty for people who see only their own tasks: the hint itself says enough.
    """

    task: str
    type: str
    progress: float | None
    version: int


@dataclass(frozen=True, slots=True)
class PushedEvent:
    """One committed event of a task as the publisher carries it.

    `seq` is dense in the task and in commit order; `version` is the task's `state_version`.
    """

    tenant_id: UUID
    task_id: UUID
    seq: int
    type: str
    progress: float | None
    phase: str
    version: int

    def task_form(self) -> PushedForm:
        """Return the data for the task's own channel, at most MAX_PUSHED_BYTES as JSON."""
        form: PushedForm = {
            "seq": self.seq,
            "type": self.type,
            "progress": self.progress,
            "phase": self.phase,
            "version": self.version,
        }
        return {**form, "phase": _fitting_phase(form)}

    def tenant_form(self) -> TenantForm:
        """Return the data for the tenant's channels; constant in size."""
        return {
            "task": str(self.task_id),
            "type": self.type,
            "progress": self.progress,
            "version": self.version,
        }


def _fitting_phase(form: PushedForm) -> str:
    """Return the phase, cut so that the form keeps to its limit."""
    room = MAX_PUSHED_BYTES - len(json.dumps({**form, "phase": ""}))
    phase = form["phase"]
    while len(json.dumps(phase)) - 2 > room:
        phase = phase[:-1]
    return phase


def describe_fields(shape: type) -> Mapping[str, str]:
    """Return each field of a shape with its type as text, in the order of the declaration."""
    hints = get_type_hints(shape)
    optional: frozenset[str] = getattr(shape, "__optional_keys__", frozenset())
    return {
        name: _type_text(hint) + (", optional" if name in optional else "")
        for name, hint in hints.items()
    }


def _type_text(hint: object) -> str:
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    if "[" in str(hint):
        text = str(hint)
    return text.replace("collections.abc.", "").replace("None", "null")
