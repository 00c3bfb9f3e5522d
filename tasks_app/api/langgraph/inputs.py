"""Bodies and queries of the run door; a run's own body is `domain.run_bodies`."""

from typing import Any, Literal
from uuid import UUID

from pydantic import Field, model_validator

from tasks_app.api.langgraph.base import DoorInput
from tasks_app.domain.run_bodies import check_modes
from tasks_app.domain.runs import CancelAction, RunStatus, ThreadStatus
from tasks_app.queries.conversations import ChildFilter
from tasks_app.queries.threads import MAX_THREADS

Json = dict[str, Any]
MAX_SEQ = 2**62


class ThreadBody(DoorInput):
    """POST /threads; lifetimes are the installation's, so `ttl` is taken and means nothing."""

    thread_id: str | None = None
    metadata: Json = Field(default_factory=dict)
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: Any = None


class ThreadPatch(DoorInput):
    """PATCH /threads/{t}."""

    metadata: Json = Field(default_factory=dict)
    ttl: Any = None


class ThreadCount(DoorInput):
    """POST /threads/count."""

    metadata: Json = Field(default_factory=dict)
    values: Json = Field(default_factory=dict)
    status: ThreadStatus | None = None


class ThreadSearch(ThreadCount):
    """POST /threads/search."""

    ids: list[str] = Field(default_factory=list, max_length=MAX_THREADS)
    limit: int = Field(10, ge=1, le=MAX_THREADS)
    offset: int = Field(0, ge=0, le=MAX_SEQ)
    sort_by: Literal["thread_id", "created_at", "updated_at", "status"] = "created_at"
    sort_order: Literal["asc", "desc"] = "desc"
    select: list[str] = Field(default_factory=list, max_length=20)


class ThreadQuery(DoorInput):
    """GET /threads/{t}."""

    include: str = ""


class StateQuery(DoorInput):
    """GET /threads/{t}/state; a thread has no states within states."""

    subgraphs: bool = False
    select: list[str] = Field(default_factory=list)


class StateAt(DoorInput):
    """POST /threads/{t}/state/checkpoint."""

    checkpoint: Json
    subgraphs: bool = False
    select: list[str] = Field(default_factory=list)


class StateBody(DoorInput):
    """POST /threads/{t}/state."""

    values: Json | None = None
    checkpoint_id: str | None = None
    checkpoint: Json | None = None
    as_node: str | None = None


class HistoryQuery(DoorInput):
    """GET /threads/{t}/history."""

    limit: int = Field(10, ge=1, le=MAX_THREADS)
    before: str | None = None


class HistoryBody(DoorInput):
    """POST /threads/{t}/history."""

    limit: int = Field(10, ge=1, le=MAX_THREADS)
    before: str | Json | None = None
    metadata: Json = Field(default_factory=dict)
    checkpoint: Json | None = None
    select: list[str] = Field(default_factory=list)


class RunListQuery(DoorInput):
    """GET /threads/{t}/runs."""

    limit: int = Field(10, ge=1, le=MAX_THREADS)
    offset: int = Field(0, ge=0, le=MAX_SEQ)
    status: RunStatus | None = None
    select: list[str] = Field(default_factory=list)


class RunPageQuery(DoorInput):
    """GET /threads/{t}/runs/page: both names of the last run, or neither."""

    limit: int = Field(10, ge=1, le=MAX_THREADS)
    before_created_at: str | None = None
    before_run_id: UUID | None = None

    @model_validator(mode="after")
    def _both(self) -> "RunPageQuery":
        if (self.before_created_at is None) != (self.before_run_id is None):
            raise ValueError("before_created_at and before_run_id go together.")
        return self


class MessagesQuery(DoorInput):
    """GET …/messages."""

    limit: int = Field(50, ge=1, le=200)
    before_seq: int | None = Field(None, ge=1, le=MAX_SEQ)
    after_seq: int | None = Field(None, ge=1, le=MAX_SEQ)
    include_superseded: bool = False


class EventsQuery(DoorInput):
    """GET …/runs/{r}/events."""

    limit: int = Field(500, ge=1, le=2000)
    after_seq: int = Field(0, ge=0, le=MAX_SEQ)
    event_types: str = ""
    task_id: str = Field("", max_length=255)
    execution_id: UUID | None = None

    @property
    def child(self) -> ChildFilter | None:
        """Return the task that the run started and that is asked for."""
        if not self.task_id and self.execution_id is None:
            return None
        return ChildFilter(self.task_id, str(self.execution_id or ""))


class UsageQuery(DoorInput):
    """GET /threads/{t}/token-usage."""

    include_active: bool = False


class ActionQuery(DoorInput):
    """POST /runs/cancel."""

    action: CancelAction = CancelAction.INTERRUPT


class CancelQuery(ActionQuery):
    """POST …/runs/{r}/cancel."""

    wait: bool = False


class CancelMany(DoorInput):
    """Which runs to cancel: those of a status, or those that are named."""

    status: Literal["pending", "running", "all"] | None = None
    thread_id: str | None = None
    run_ids: list[UUID] | None = Field(None, max_length=MAX_THREADS)

    @model_validator(mode="after")
    def _one(self) -> "CancelMany":
        named = self.thread_id is not None and self.run_ids is not None
        loose = (self.thread_id is not None) != (self.run_ids is not None)
        if loose or named == (self.status is not None):
            raise ValueError("Either status, or thread_id and run_ids.")
        return self


class JoinQuery(DoorInput):
    """GET …/stream and …/join; without a mode it is the run's own."""

    stream_mode: list[str] = Field(default_factory=list)
    cancel_on_disconnect: bool = False
    stream_subgraphs: bool = False

    @property
    def modes(self) -> list[str]:
        """Return the modes; they come repeated, or as a JSON list in one. Raises: InvalidInputError."""
        given = [name.strip(' "') for text in self.stream_mode for name in _listed(text)]
        found = list(dict.fromkeys(name for name in given if name))
        check_modes(found)
        return found


class StreamQuery(JoinQuery):
    """POST …/stream: with an action it cancels, and follows the run to its end."""

    action: CancelAction | None = None
    wait: bool = False


class AssistantSearch(DoorInput):
    """POST /assistants/search and /assistants/count."""

    metadata: Json = Field(default_factory=dict)
    graph_id: str | None = None
    name: str | None = None
    limit: int = Field(10, ge=1, le=MAX_THREADS)
    offset: int = Field(0, ge=0, le=MAX_SEQ)
    sort_by: str | None = None
    sort_order: str | None = None
    select: list[str] = Field(default_factory=list)


class GraphQuery(DoorInput):
    """GET /assistants/{a}/graph."""

    xray: str = ""


def _listed(text: str) -> list[str]:
    return text.strip().removeprefix("[").removesuffix("]").split(",")
