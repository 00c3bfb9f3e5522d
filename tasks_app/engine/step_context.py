"""What a running step holds: the engine's implementation of `workflows.StepContext`."""

import json
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from uuid import UUID

from django.db import connection
from pydantic import BaseModel

from ledger_app.domain.canonical import clean_text
from ledger_app.domain.redaction import redact
from ledger_app.services.usage import is_amount
from tasks_app.domain import tracing
from tasks_app.domain.errors import LeaseLost
from tasks_app.domain.workspace import ITEMS
from tasks_app.engine import lease as leases
from tasks_app.engine import secret_values, thread_values, values, workspace
from tasks_app.engine.saying import Saying
from tasks_app.engine.session import SliceSession
from tasks_app.engine.usage import UsageReport
from tasks_app.events.catalogue import EventType
from tasks_app.models import Step, Task
from tasks_app.tools import artifact_store
from tasks_app.tools.artifact_store import StoredBlob
from tasks_app.workflows import ArtifactRef, ItemList, ModelFailedError

_PROGRESS_PAUSE_SECONDS = 0.25
_ITEM_STRIDE = 50
_MESSAGE_MAX = 500
_NAME_MAX = 255
_MEDIA_TYPE_MAX = 100

# An artifact is a row only while its step's worker still owns the task (E3).
_PUT_ARTIFACT = """
WITH owned AS (
    SELECT id, tenant_id FROM tasks_app_task
    WHERE id = %(task_id)s AND fence = %(fence)s AND status IN ('working', 'pausing')
    FOR UPDATE
), put AS (
    INSERT INTO tasks_app_artifact (id, tenant_id, task_id, step_key, name, media_type, size_bytes,
        sha256, presented, fence, created_at)
    SELECT %(id)s, tenant_id, id, %(step_key)s, %(name)s, %(media_type)s, %(size)s, %(sha256)s,
        %(presented)s, %(fence)s, clock_timestamp()
    FROM owned
    ON CONFLICT (task_id, step_key, name, sha256) DO NOTHING
    RETURNING id
)
SELECT (SELECT count(*) FROM owned), (SELECT id FROM put)
"""


def effect_key(step: Step) -> str:
    """Return the ledger's key of a step's act: `task:step` (M13).

    A later plan's step of the same name is another act and has another key.
    """
    later = f"@{step.plan_version}" if step.plan_version > 1 else ""
    return f"{step.task_id}:{step.key}{later}"


class RunningStep:
    """One try of one step.

    Inside an atomic step nothing touches the task's row before the body is done: a lock on it would
    stop the lease's renewal. Progress is then seen with the commit, and artifacts wait for it.
    """

    def __init__(self, session: SliceSession, step: Step, *, atomic: bool = False) -> None:
        self._session = session
        self._task = session.task
        self._step = step
        self._step_key = step.key
        self._told_at = 0.0
        self._messages = 0
        self._saying = Saying(session.task.id, session.task.fence, step.key)
        self._atomic = atomic
        self._waiting: list[tuple[dict[str, Any], ArtifactRef]] = []

    @property
    def task_id(self) -> UUID:
        return self._task.id

    @property
    def step_key(self) -> str:
        return self._step_key

    @property
    def effect_key(self) -> str:
        return effect_key(self._step)

    @property
    def external_id(self) -> str:
        return str(self._step.options.get("external_id", ""))

    @property
    def traceparent(self) -> str:
        rows = Task.objects.for_tenant(self._task.tenant_id).filter(pk=self._task.id)
        return tracing.span_of(rows.values_list("traceparent", flat=True).get(), self._step_key)

    @property
    def deadline(self) -> datetime | None:
        rows = Task.objects.for_tenant(self._task.tenant_id).filter(pk=self._task.id)
        found: datetime | None = rows.values_list("deadline_at", flat=True).get()
        return found

    @property
    def now(self) -> datetime:
        return leases.database_now()

    @property
    def cancelled(self) -> bool:
        return self._session.lease.cancel_requested

    @cached_property
    def random(self) -> random.Random:
        return random.Random(f"{self._task.id}:{self._step_key}")  # noqa: S311 - repeatable, not secret

    def uuid(self, label: str) -> UUID:
        return uuid.uuid5(self._task.id, f"{self._step_key}:{label}")

    def secret(self, name: str) -> str:
        return secret_values.get_secret(name)

    def log(self, message: str, **facts: object) -> None:
        data: dict[str, object] = {"message": secret_values.scrub(message)[:_MESSAGE_MAX]}
        if facts:
            plain = {name: secret_values.scrub(str(fact))[:200] for name, fact in facts.items()}
            data["facts"] = redact(plain)
        self._session.hold_event(EventType.LOG, data)

    @property
    def thread_values(self) -> Mapping[str, Any]:
        return thread_values.seen_by(self._task.tenant_id, self._task.id)

    def message(
        self,
        content: Any,
        *,
        type: str = "ai",  # noqa: A002 - the message's field has this name everywhere
        name: str = "",
        tool_calls: Sequence[Mapping[str, Any]] = (),
        tool_call_id: str = "",
    ) -> str:
        message_id = self._message_id()
        self._saying.end(message_id)
        self._messages += 1
        given = {
            "id": message_id,
            "type": type,
            "content": content,
            "name": name,
            "toolCalls": [dict(call) for call in tool_calls],
            "toolCallId": tool_call_id,
            "step": self._step_key,
        }
        message = {key: value for key, value in given.items() if key == "content" or value}
        self._session.hold_event(EventType.MESSAGE, thread_values.checked(message))
        return message_id

    def stream(self, piece: str) -> None:
        self._saying.add(self._message_id(), piece)

    def _message_id(self) -> str:
        """Return the id of the step's next message, the same at every try."""
        return str(self.uuid(f"message:{self._messages + 1}"))

    def model_failed(self, message: str, *, model: str = "") -> NoReturn:
        self.message(message)
        told = {"message": secret_values.scrub(message)[:_MESSAGE_MAX], "model": model}
        self._session.hold_event(EventType.MODEL_ERROR, {**told, "step": self._step_key})
        raise ModelFailedError(message)

    def set_values(self, **values: Any) -> None:
        self._session.hold_event(
            EventType.VALUES, thread_values.checked({"values": values, "step": self._step_key})
        )

    def progress(self, done: int, total: int | None = None, phase: str = "") -> None:
        now = time.monotonic()
        if now - self._told_at < _PROGRESS_PAUSE_SECONDS:
            return
        self._told_at = now
        name = phase or self._session.phase
        self._session.phase = f"{name.split(' (')[0]} ({done}/{total})" if total else name
        if not self._atomic:
            self._session.commit_progress()

    def heartbeat(self) -> None:
        self._session.lease.check()

    def artifact(
        self, name: str, data: bytes | str | Path, media_type: str, *, presented: bool = True
    ) -> ArtifactRef:
        content = data.encode() if isinstance(data, str) else data
        stored = artifact_store.put_blob(self._task.tenant_id, content)
        return self._put_row(name, media_type, stored, presented=presented)

    def present(self, *paths: str) -> list[ArtifactRef]:
        files = workspace.seen_by(self._task.tenant_id, self._task.id)
        files |= {ref.name: workspace.fact_of(ref) for _, ref in self._waiting}
        return [
            self._put_row(
                name,
                fact["media_type"],
                StoredBlob(fact["sha256"], fact["size_bytes"]),
                presented=True,
            )
            for name, fact in workspace.find(files, paths).items()
        ]

    def open_artifact(self, reference: ArtifactRef) -> BinaryIO:
        return artifact_store.open_blob(self._task.tenant_id, reference.sha256)

    def usage(
        self,
        source_id: str,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_micros: int | None = None,
    ) -> None:
        amounts = (input_tokens, output_tokens, 0 if cost_micros is None else cost_micros)
        if not all(is_amount(amount) for amount in amounts):
            # As providers sometimes report: the call was made, and its result counts.
            self.log("A report of usage was not counted: its numbers are malformed.", model=model)
            return
        called, by = clean_text(str(source_id)), clean_text(str(model))
        self._session.spending.reports.append(
            UsageReport(called, by, input_tokens, output_tokens, cost_micros)
        )

    def items(self, name: str, rows: Iterable[BaseModel | dict[str, Any]]) -> ItemList:
        offsets: list[int] = []
        changes: list[str] = []
        counts = {"rows": 0, "bytes": 0}

        def lines() -> Iterator[bytes]:
            for row in rows:
                value = row.model_dump(mode="json") if isinstance(row, BaseModel) else row
                value, changed = values.nearest(value)
                if changed:
                    changes.append(changed)
                line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
                if counts["rows"] % _ITEM_STRIDE == 0:
                    offsets.append(counts["bytes"])
                counts["rows"] += 1
                counts["bytes"] += len(line)
                yield line

        stored = artifact_store.put_blocks(self._task.tenant_id, lines())
        if changes:
            self.log(f"{name}: {len(changes)} rows are stored in another form: {changes[0]}")
        self._put_row(f"{ITEMS}/{name}.jsonl", "application/jsonl", stored, presented=False)
        return ItemList(
            sha256=stored.sha256, count=counts["rows"], stride=_ITEM_STRIDE, offsets=tuple(offsets)
        )

    def _put_row(
        self, name: str, media_type: str, stored: StoredBlob, *, presented: bool
    ) -> ArtifactRef:
        self._session.lease.check()
        name, media_type = clean_text(name)[:_NAME_MAX], clean_text(media_type)[:_MEDIA_TYPE_MAX]
        reference = ArtifactRef(
            # The same content under the same name has the same id at every try.
            artifact_id=self.uuid(f"artifact:{name}:{stored.sha256}"),
            name=name,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            media_type=media_type,
        )
        row = {
            "task_id": self._task.id,
            "fence": self._task.fence,
            "id": reference.artifact_id,
            "step_key": self._step_key,
            "name": name,
            "media_type": media_type,
            "size": stored.size_bytes,
            "sha256": stored.sha256,
            "presented": presented,
        }
        self._waiting.append((row, reference))
        if not self._atomic:
            self.write_artifacts()
        return reference

    def write_artifacts(self) -> None:
        """Store the rows of artifacts that wait for the end of an atomic body. Raises: LeaseLost."""
        waiting, self._waiting = self._waiting, []
        for row, reference in waiting:
            with connection.cursor() as cursor:
                cursor.execute(_PUT_ARTIFACT, row)
                owned, new = cursor.fetchone()
            if not owned:
                raise LeaseLost(self._task.id, self._task.fence)
            self._session.references.note_artifact(row["id"], row["name"], row["sha256"])
            if row["presented"] and new:
                self._session.hold_event(
                    EventType.ARTIFACT,
                    {
                        "name": reference.name,
                        "uri": reference.uri,
                        "sha256": reference.sha256,
                        "sizeBytes": reference.size_bytes,
                        "mediaType": reference.media_type,
                    },
                )
