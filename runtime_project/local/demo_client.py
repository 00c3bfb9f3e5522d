"""The demo's view of the product: the same REST interface that any client uses."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import httpx

from runtime_project.local.processes import LocalStackError

Json = dict[str, Any]


class DemoClient:
    """One person's key against one address; `log` is shown when an answer is missing."""

    def __init__(self, url: str, key: str, log: Path) -> None:
        self._log = log
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=30,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def create_task(self, body: Mapping[str, object]) -> str:
        """Create a task and send the request again with the same key; return the one task's id.

        Raises:
            LocalStackError: refused, or the second request made a second task.
        """
        headers = {"Idempotency-Key": str(uuid4())}
        first = self._json("POST", "/runtime/tasks", json=body, headers=headers)
        again = self._json("POST", "/runtime/tasks", json=body, headers=headers)
        if first["taskId"] != again["taskId"]:
            raise LocalStackError("one Idempotency-Key made two tasks")
        return str(UUID(first["taskId"]))

    def snapshot(self, task_id: str) -> Json:
        """Return the authoritative present state of a task."""
        return self._json("GET", f"/runtime/tasks/{task_id}")

    def list_of(self, task_id: str, what: str, **query: str | int) -> list[Json]:
        """Return all effects, artifacts or another list of a task; `query` narrows it."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            parameters = query if cursor is None else {**query, "cursor": cursor}
            page = self._json("GET", f"/runtime/tasks/{task_id}/{what}", params=parameters)
            found += page["items"]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    def approval(self, approval_id: str) -> Json:
        """Return what exactly a person is asked to decide."""
        return self._json("GET", f"/runtime/approvals/{approval_id}")

    def decide(self, approval: Mapping[str, Any], *, decision: str, reason: str) -> None:
        """Answer an approval as it was shown: its digest and version travel with the answer."""
        body = {
            "decision": decision,
            "argsSha256": approval["argsSha256"],
            "expectedVersion": approval["version"],
            "reason": reason,
        }
        self._json("POST", f"/runtime/approvals/{approval['id']}/decision", json=body)

    def download(self, artifact: Mapping[str, Any], folder: Path) -> tuple[Path, str]:
        """Save an artifact below `folder`; return its path and the SHA-256 of what arrived."""
        path = folder / Path(str(artifact["name"])).name
        digest = hashlib.sha256()
        address = f"/runtime/artifacts/{artifact['id']}/content"
        with self._http.stream("GET", address) as answer, path.open("wb") as file:
            if answer.status_code != httpx.codes.OK:
                raise LocalStackError(f"artifact {path.name} answered {answer.status_code}")
            for part in answer.iter_bytes():
                digest.update(part)
                file.write(part)
        return path, digest.hexdigest()

    def _json(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise LocalStackError(f"{method} {path}: no answer ({error})", log=self._log) from error
        if answer.is_client_error:
            raise LocalStackError(say_problem(answer))
        if answer.is_error:
            said = f"{method} {path} answered {answer.status_code}: {say_problem(answer)}"
            raise LocalStackError(said, log=self._log)
        try:
            result: Json = answer.json()
        except ValueError as error:
            said = f"{method} {path} answered something else than JSON"
            raise LocalStackError(said, log=self._log) from error
        return result


def say_problem(answer: httpx.Response) -> str:
    """Return the sentence of a refusal without its full stop; the bare text if it has none."""
    try:
        problem = answer.json()
        first = next(iter(problem.get("errors", ())), problem)
        return str(first["detail"]).removesuffix(".")
    except (ValueError, AttributeError, KeyError, TypeError):
        return f"The answer was {answer.status_code}: {answer.text}"
