"""What a running step may use; the engine is behind it (`engine.step_context`)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, NoReturn, Protocol
from uuid import UUID

from pydantic import BaseModel

from tasks_app.workflows.values import ArtifactRef, ItemList


class StepContext(Protocol):
    """What a running step may use."""

    @property
    def task_id(self) -> UUID:
        """Return the task's id."""

    @property
    def step_key(self) -> str:
        """Return the step's name in its plan."""

    @property
    def effect_key(self) -> str:
        """Return the stable idempotency key of this step; send it to the other side."""

    @property
    def external_id(self) -> str:
        """Return the id from outside that the call named, such as a model's tool call; or empty."""

    @property
    def now(self) -> datetime:
        """Return the database's time."""

    @property
    def traceparent(self) -> str:
        """Return the W3C trace context of this step, to be sent with what it calls."""

    @property
    def deadline(self) -> datetime | None:
        """Return when the task must have ended."""

    @property
    def random(self) -> Random:
        """Return a source of numbers that are the same at every try of this step; no secrets."""

    @property
    def cancelled(self) -> bool:
        """Tell whether someone asked to cancel the task."""

    def uuid(self, label: str) -> UUID:
        """Return an id that is the same at every try of this step."""

    def secret(self, name: str) -> str:
        """Return a secret that the installation lets steps use; never store or return it.

        Raises: SecretUnavailableError when RUNTIME_STEP_SECRETS does not name it or it is not set.
        """

    def log(self, message: str, **facts: object) -> None:
        """Write a line to the task's journal; facts are redacted."""

    @property
    def thread_values(self) -> Mapping[str, Any]:
        """Return the values of the task's thread with what this task has committed to them.

        At least `messages` (a list, oldest first), `result` and `artifacts`; a task without a
        thread sees its own alone.
        """

    def message(
        self,
        content: Any,
        *,
        type: str = "ai",  # noqa: A002 - the message's field has this name everywhere
        name: str = "",
        tool_calls: Sequence[Mapping[str, Any]] = (),
        tool_call_id: str = "",
    ) -> str:
        """Add a message to the conversation with the step's commit; return its id.

        Args:
            content: text, or JSON data of at most 256 KiB.
            type: `ai`, `tool`, `human` or `system`.
            tool_calls: what a model asks for, each with `id`, `name` and `args`.
            tool_call_id: the call that a tool's message answers.
        """

    def stream(self, piece: str) -> None:
        """Show readers the next piece of the message that `message` adds when it is whole.

        Nothing of it is stored; who comes later sees the whole message.
        """

    def model_failed(self, message: str, *, model: str = "") -> NoReturn:
        """Say what a model that gave up has said, and fail this try: no answer is no success.

        Raises: ModelFailedError.
        """

    def set_values(self, **values: Any) -> None:
        """Change named values of the task's thread with the step's commit; the others stay."""

    def progress(self, done: int, total: int | None = None, phase: str = "") -> None:
        """Tell people how far this step is; at most four writes a second."""

    def heartbeat(self) -> None:
        """Stop the step at once if the task is no longer this worker's."""

    def artifact(
        self, name: str, data: bytes | str | Path, media_type: str, *, presented: bool = True
    ) -> ArtifactRef:
        """Store an output; the same content under the same name is stored once.

        The name is a path in the workspace of the task's thread. Without `presented` it stays there
        until it is handed over with `present`; a task that makes files below `outputs/` and hands
        over none of them fails with `delivery_incomplete`.
        """

    def present(self, *paths: str) -> list[ArtifactRef]:
        """Hand over files of the workspace, each by its path or with the folder that it lies in.

        Raises: NotDeliverableError for what is not there, or is empty.
        """

    def open_artifact(self, reference: ArtifactRef) -> BinaryIO:
        """Open a stored output for reading; the caller closes it."""

    def usage(
        self,
        source_id: str,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_micros: int | None = None,
    ) -> None:
        """Report what a call of a model used; counted once for each `source_id` of the task.

        Without `cost_micros` the tenant's newest price of the model is taken, where money is
        limited.
        """

    def items(self, name: str, rows: Iterable[BaseModel | dict[str, Any]]) -> ItemList:
        """Stream rows into a list that a map can read by ranges."""
