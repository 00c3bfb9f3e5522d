"""The operations of the `scripted` test workflow, as data: what a goal's script may hold."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ledger_app.domain.effects import EffectKind


class _Operation(BaseModel):
    """`when` names an earlier operation, "0" or "0.field", whose result must be true."""

    model_config = ConfigDict(extra="forbid")

    when: str = ""


class Say(_Operation):
    """Say a message; `append` counts real executions in a file.

    `tokens` reports input and output tokens of the call `call_id` of a model.
    """

    op: Literal["say"]
    text: str = ""
    call_id: str = ""
    model: str = "scripted"
    tokens: tuple[int, int] | None = None
    append: str | None = None
    impure: bool = False


class Sleep(_Operation):
    """Wait: as a timer of the task, or (block) inside C code that never yields."""

    op: Literal["sleep"]
    s: float
    block: bool = False


class Effect(_Operation):
    """One act: append a line to a file, or POST to an address.

    The key is sent as `Idempotency-Key` by a keyed act and as `Reference` by the others: an outside
    that forgets nothing does the first once and the others each time.
    """

    op: Literal["effect"]
    key: str
    kind: EffectKind = EffectKind.KEYED
    unattended: bool = False
    # A keyed act that is undone when the task ends without success; not while this file exists.
    undo: bool = False
    refuse_undo: str | None = None
    append: str | None = None
    post: str | None = None
    patience_seconds: float = 5
    # The act waits for this file before it posts.
    after: str | None = None
    approve: bool = False
    deadline_seconds: float = 3600
    on_timeout: Literal["deny", "fail"] = "deny"
    refuse: bool = False


class Map(_Operation):
    """Process so many items; `fail` lists indexes that cannot be processed."""

    op: Literal["map"]
    count: int
    skip: list[int] = Field(default_factory=list)
    fail: list[int] = Field(default_factory=list)
    max_failed: int | None = None
    chunk: int = 10
    append: str | None = None


class Write(_Operation):
    """Store an artifact; below `outputs/` it is not handed over yet."""

    op: Literal["write"]
    path: str
    text: str


class Present(_Operation):
    """Hand over files of the workspace."""

    op: Literal["present"]
    paths: list[str]


class Set(_Operation):
    """Return values as the step's result; they are values of the thread, too."""

    op: Literal["set"]
    values: dict[str, Any]


class Interrupt(_Operation):
    """Ask a question that `provide_input` answers."""

    op: Literal["interrupt"]
    value: str = ""
    answer: dict[str, Any] = Field(default_factory=dict)


class ToolCall(_Operation):
    """Let a model call a tool, do what `then` says, and answer the call."""

    op: Literal["toolcall"]
    id: str
    name: str
    then: list[dict[str, Any]] = Field(default_factory=list)


class ModelFailure(_Operation):
    """Let the model give up."""

    op: Literal["llm_fallback"]
    text: str


class Fail(_Operation):
    """Fail with an error of the class `error`: `times` tries, or always."""

    op: Literal["fail"]
    error: str = "planned"
    message: str = "the script says so"
    times: int | None = None
    append: str | None = None
    on_failure: Literal["fail", "skip", "ask"] = "fail"


class Atomic(_Operation):
    """Add a row to a table of Django's, in one commit with the result; fail first so often.

    The row is a group whose name begins with the task's id and is new at every run, so that a
    second one would be seen.
    """

    op: Literal["atomic"]
    append: str | None = None
    write: str | None = None
    fail: int = 0


class Ask(_Operation):
    """Read an address; one that does not answer runs into the step's time-out."""

    op: Literal["ask"]
    url: str


class Child(_Operation):
    """Run a script as a task of its own; `external_id` is the call of a tool that it answers."""

    op: Literal["task"]
    script: list[dict[str, Any]]
    external_id: str = ""
    timeout_s: float | None = None
    wait: bool = True
    on_failure: Literal["fail", "skip"] = "fail"


class Die(_Operation):
    """Kill the worker process that runs the step, every time."""

    op: Literal["die"]


Operation = Annotated[
    Say
    | Sleep
    | Effect
    | Map
    | Write
    | Present
    | Set
    | Interrupt
    | Fail
    | ModelFailure
    | ToolCall
    | Ask
    | Atomic
    | Child
    | Die,
    Field(discriminator="op"),
]


class ScriptGoal(BaseModel):
    """What the script does; `note` is only there to be changed by adjust_goal."""

    model_config = ConfigDict(extra="forbid")

    script: list[Operation] = Field(max_length=20_000)
    note: str = ""
    refuse_goal: bool = False
