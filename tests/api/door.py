"""The run door as one person uses it, with a worker that runs when the test says so."""

from typing import Any

import httpx
from django.contrib.auth.models import User

from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TaskStatus
from tests.factories import make_api_key
from tests.support.engine import Engine
from tests.support.streams import Received, WebServer, listen

SCOPES = (
    "tasks:read", "tasks:create", "tasks:cancel", "tasks:steer",
    "approvals:read", "approvals:decide",
)  # fmt: skip


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"op": "say", "text": text, **more}


class Door:
    """A submitter with a key, a server, and a worker that runs when told to."""

    def __init__(self, web: WebServer) -> None:
        self.engine = Engine()
        self.headers = self.headers_of(self.engine.submitter)
        self.url = f"{web.url}/api"
        self.client = httpx.Client(
            base_url=self.url, headers=self.headers, trust_env=False, timeout=20
        )

    def headers_of(self, principal: Principal) -> dict[str, str]:
        person = User.objects.get(pk=principal.user_id or 0)
        _, key = make_api_key(self.engine.tenant, person, SCOPES)
        return {"X-Api-Key": key}

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, path, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def start(self, *script: dict[str, Any], **more: Any) -> dict[str, Any]:
        body: dict[str, Any] = {
            "assistant_id": "scripted", "input": {"script": list(script), **more.pop("input", {})},
            "if_not_exists": "create", **more,
        }  # fmt: skip
        found: dict[str, Any] = self.ask("POST", "/threads/talk/runs", json=body)
        return found

    def drive(self, run: dict[str, Any]) -> TaskStatus:
        return TaskStatus(self.engine.drive(run["run_id"]).status)

    def run(self, *script: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return a run that has come to rest."""
        run = self.start(*script, **more)
        self.drive(run)
        return run

    def place(self, run: dict[str, Any]) -> str:
        return f"/threads/{run['thread_id']}/runs/{run['run_id']}"

    def frames(
        self, run: dict[str, Any], query: str = "", last: str | None = None
    ) -> list[Received]:
        headers = {**self.headers, **({} if last is None else {"Last-Event-ID": last})}
        with listen(f"{self.url}{self.place(run)}/stream{query}", headers=headers) as events:
            return events.until("end")
