"""What a client of the run door may ask for: shapes, defaults and plain checks (runs, sections 2-3).

Nothing here reads a row. Options that a durable engine fulfils anyway are accepted and ignored.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tasks_app.domain.errors import FieldProblem, InvalidInputError, InvalidMessageError
from tasks_app.domain.runs import Strategy

STREAM_MODES = ("values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug")
THREAD_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
MESSAGE_TYPES = {"human": "human", "user": "human", "ai": "ai", "assistant": "ai",
                 "system": "system", "tool": "tool"}  # fmt: skip
# What a client may set of a run's context; everything else is the server's or means nothing.
CONTEXT_KEYS = frozenset({
    "model_name", "mode", "thinking_enabled", "reasoning_effort", "subagent_enabled",
    "max_concurrent_subagents", "agent_name", "priority", "secret_refs",
})  # fmt: skip
_SECRET_KEYS = frozenset({
    "auth_token", "api_key", "access_token", "refresh_token", "password", "secret",
    "client_secret", "authorization",
})  # fmt: skip
MAX_DELIVERABLES = 100
MAX_DELAY_SECONDS = 366 * 24 * 3600

Json = dict[str, Any]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommandBody(_Body):
    """An answer to what a run waits for, instead of a new input."""

    resume: Any = None
    update: Any = None
    goto: Any = None


class ConfigBody(_Body):
    """Settings of a run in the form that the clients send."""

    tags: list[str] = Field(default_factory=list, max_length=50)
    metadata: Json = Field(default_factory=dict)
    recursion_limit: int | None = None
    configurable: Json = Field(default_factory=dict)


class RunBody(_Body):
    """The body of every request that makes a run."""

    assistant_id: str | None = None
    input: Any = None
    command: CommandBody | None = None
    metadata: Json | None = None
    config: ConfigBody | None = None
    context: Json | None = None
    checkpoint_id: str | None = None
    checkpoint: Json | None = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool = False
    stream_resumable: bool | None = None
    on_disconnect: Literal["cancel", "continue"] = "continue"
    on_completion: Literal["delete", "keep"] = "delete"
    multitask_strategy: Strategy = Strategy.REJECT
    if_not_exists: Literal["create", "reject"] = "reject"
    after_seconds: Annotated[float, Field(ge=0, le=MAX_DELAY_SECONDS)] | None = None
    durability: Any = None
    checkpoint_during: Any = None
    strict_resume: bool | None = None
    webhook: str | None = None
    feedback_keys: Any = None
    langsmith_tracer: Any = None

    @field_validator("config", mode="before")
    @classmethod
    def _no_config(cls, value: Any) -> Any:
        return value or None

    @property
    def modes(self) -> list[str]:
        """Return the stream modes, `values` when none was asked for."""
        given = [self.stream_mode] if isinstance(self.stream_mode, str) else self.stream_mode
        return list(dict.fromkeys(given or ["values"]))

    @property
    def configurable(self) -> Json:
        """Return `config.configurable`."""
        return dict(self.config.configurable) if self.config else {}


def parse(body: Any) -> RunBody:
    """Return a body that fits in itself.

    Raises:
        InvalidInputError: with a pointer to each problem.
        InvalidMessageError: names the place of the message in `input.messages`.
    """
    try:
        parsed = RunBody.model_validate(body)
    except ValidationError as error:
        problems = [
            FieldProblem(
                pointer="".join(f"/{part}" for part in problem["loc"]),
                code="unknown_field" if problem["type"] == "extra_forbidden" else problem["type"],
                detail=problem["msg"],
            )
            for problem in error.errors(include_url=False, include_input=False)
        ]
        names = ", ".join(problem.pointer.lstrip("/") or "the body" for problem in problems[:3])
        raise InvalidInputError(f"The run does not fit: {names}.", problems) from error
    check_modes(parsed.modes)
    _check_options(parsed)
    _check_messages(parsed.input)
    _check_deliverables(parsed.input)
    _check_secrets(parsed)
    return parsed


def check_modes(modes: list[str]) -> None:
    """Refuse stream modes that nobody sends. Raises: InvalidInputError."""
    unknown = [mode for mode in modes if mode not in STREAM_MODES]
    if unknown:
        detail = f"Unsupported stream mode(s): {', '.join(unknown)}"
        raise InvalidInputError(detail, [FieldProblem("/stream_mode", "invalid_value", detail)])


def check_thread_key(key: str, pointer: str = "/thread_id") -> None:
    """Refuse a name that no thread can have (R15). Raises: InvalidInputError."""
    if not THREAD_KEY.fullmatch(key):
        detail = "1 to 64 letters, digits, _ or -."
        raise InvalidInputError(
            f"thread_id: {detail}", [FieldProblem(pointer, "invalid_value", detail)]
        )


def cleaned_context(context: Mapping[str, Any]) -> Json:
    """Return what a client may set of a context; the rest is dropped in silence (R19)."""
    return {key: value for key, value in context.items() if key in CONTEXT_KEYS}


def check_no_secrets(value: Any, pointer: str) -> None:
    """Refuse a secret where it would be stored and shown again (R16). Raises: InvalidInputError."""
    found = next(_secret_pointers(value, pointer), None)
    if found is not None:
        detail = f"{found.lstrip('/')} may not carry a secret; name it in context.secret_refs."
        raise InvalidInputError(detail, [FieldProblem(found, "secret_in_request", detail)])


def _check_options(body: RunBody) -> None:
    for name in ("feedback_keys", "interrupt_before", "interrupt_after"):
        if getattr(body, name) not in (None, [], ""):
            detail = f"Run option '{name}' is not supported"
            raise InvalidInputError(detail, [FieldProblem(f"/{name}", "unsupported", detail)])
    command = body.command
    if command is not None and (command.update is not None or command.goto is not None):
        detail = "Run option 'command.update' and 'command.goto' are not supported"
        raise InvalidInputError(detail, [FieldProblem("/command", "unsupported", detail)])


def _check_messages(given: Any) -> None:
    messages = given.get("messages") if isinstance(given, Mapping) else None
    if messages is None:
        return
    if not isinstance(messages, list):
        raise InvalidMessageError("input.messages must be a list.")
    for number, message in enumerate(messages):
        kind = message.get("type", message.get("role")) if isinstance(message, Mapping) else None
        if kind not in MESSAGE_TYPES or not isinstance(message.get("content"), str | list):
            raise InvalidMessageError(
                f"input.messages[{number}] needs a type or role of "
                f"{', '.join(MESSAGE_TYPES)} and a content.",
                index=number,
            )


def _check_deliverables(given: Any) -> None:
    names = given.get("deliverables") if isinstance(given, Mapping) else None
    fits = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if names is not None and not (fits and len(names) <= MAX_DELIVERABLES):
        detail = f"At most {MAX_DELIVERABLES} names of files."
        problem = FieldProblem("/input/deliverables", "invalid_value", detail)
        raise InvalidInputError(f"input.deliverables: {detail}", [problem])


def _check_secrets(body: RunBody) -> None:
    check_no_secrets(body.metadata, "/metadata")
    if body.config is not None:
        check_no_secrets(body.config.metadata, "/config/metadata")
        check_no_secrets(body.config.configurable, "/config/configurable")
    if "secrets" in (body.context or {}):
        detail = "context.secrets is not taken; name secrets in context.secret_refs."
        raise InvalidInputError(
            detail, [FieldProblem("/context/secrets", "secret_in_request", detail)]
        )


def _secret_pointers(value: Any, pointer: str) -> Iterator[str]:
    pending = [(value, pointer)]
    while pending:
        item, place = pending.pop()
        if isinstance(item, Mapping):
            for key, child in item.items():
                if str(key).lower().replace("-", "_") in _SECRET_KEYS:
                    yield f"{place}/{key}"
                pending.append((child, f"{place}/{key}"))
        elif isinstance(item, list):
            pending.extend((child, f"{place}/{index}") for index, child in enumerate(item))
