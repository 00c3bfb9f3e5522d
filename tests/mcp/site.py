"""A site of real processes for MCP clients: two web processes, workers, a sweeper."""

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tasks_app.models import Tenant
from tasks_app.policy.capabilities import CAPABILITIES
from tests import factories
from tests.support.syncdir import SyncDir
from tests.support.workers import Fleet, WebProcess, free_port

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
_PREFIX = "io.modelcontextprotocol"
_NAMES = {"tools/call": "name", "resources/read": "uri"}


class McpSite:
    """Two web processes without stickiness, two workers, one tenant a test."""

    def __init__(self, folder: Path) -> None:
        variables = {
            "RUNTIME_APPS": "tests.mcp.fixture_app",
            "RUNTIME_MCP_SYNC_WAIT_SECONDS": "20",
            "RUNTIME_MCP_RESULT_SECONDS": "3600",
        }
        self.fleet = Fleet(folder, variables=variables)
        self.sync = SyncDir(folder / "sync")
        self.folder = folder
        self.tenant: Tenant
        self.key = ""
        # The address that tokens are given for.
        self.resource = ""
        self.webs: list[WebProcess] = []

    def start(self, *, webs: int = 2) -> None:
        """Start everything; return when it answers."""
        ports = [free_port() for _ in range(webs)]
        self.resource = f"http://127.0.0.1:{ports[0]}/mcp"
        self.fleet.env["MCP_RESOURCE_URL"] = self.resource
        self.webs = [
            WebProcess(f"web{n}", self.folder, self.fleet.env, port=port)
            for n, port in enumerate(ports)
        ]
        self.fleet.start(workers=2)
        for web in self.webs:
            web.wait_ready()

    def restart_webs(self) -> None:
        """Stop every web process as a deployment does, and start others at their addresses."""
        ports = [web.port for web in self.webs]
        for web in self.webs:
            web.send(signal.SIGTERM)
        for web in self.webs:
            web.process.wait(20)
        self.webs = [
            WebProcess(f"web{n}", self.folder, self.fleet.env, port=port)
            for n, port in enumerate(ports)
        ]
        for web in self.webs:
            web.wait_ready()

    def stop(self) -> None:
        """End everything at once."""
        for web in self.webs:
            web.kill_group()
        self.fleet.stop()

    def found_tenant(self) -> None:
        """Begin with an empty tenant and a person who may start, steer and cancel tasks."""
        self.tenant = factories.make_tenant(slug=f"mcp-{uuid4().hex[:12]}")
        self.key = self.key_of("submitter")

    def key_of(self, *roles: str, scopes: Iterable[str] = tuple(CAPABILITIES)) -> str:
        """Return the key of a new person."""
        user = factories.make_user(username=f"person-{uuid4().hex[:12]}")
        factories.make_member(self.tenant, roles, user)
        _, key = factories.make_api_key(self.tenant, user, tuple(scopes))
        return str(key)

    def url(self, web: int = 0) -> str:
        """Return the address of one web process's MCP door."""
        return f"{self.webs[web].url}/mcp"

    def client(self, key: str | None = None, web: int = 0) -> "Wire":
        """Return a client that writes the protocol itself."""
        return Wire(self.url(web), self.key if key is None else key)


class Wire:
    """Requests of revision 2026-07-28, one POST each."""

    def __init__(self, url: str, key: str, *, extension: bool = True) -> None:
        self.url = url
        self.extension = extension
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def post(
        self, method: str, params: dict[str, Any] | None = None, **more: Any
    ) -> httpx.Response:
        """Send one request; `more` as for `request`."""
        with httpx.Client(trust_env=False, timeout=60) as http:
            return http.post(**self.request(method, params, **more))

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        meta: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        capabilities: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return address, headers and body of one request."""
        params = dict(params or {})
        if capabilities is None:
            capabilities = {"elicitation": {"form": {}, "url": {}}}
            if self.extension:
                capabilities["extensions"] = {TASKS: {}}
        params["_meta"] = {
            f"{_PREFIX}/protocolVersion": VERSION,
            f"{_PREFIX}/clientCapabilities": capabilities,
            f"{_PREFIX}/clientInfo": {"name": "tests", "version": "1"},
            **(meta or {}),
        }
        sent = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
        }
        name = params.get(_NAMES.get(method, "taskId" if method.startswith("tasks/") else ""))
        if name is not None:
            sent["Mcp-Name"] = str(name)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        every = {**self.headers, **sent, **(headers or {})}
        return {"url": self.url, "json": body, "headers": every}

    def raw(self, method: str, body: bytes = b"") -> httpx.Response:
        """Send bytes as they are."""
        headers = {
            **self.headers,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": VERSION,
        }
        with httpx.Client(trust_env=False, timeout=60) as http:
            return http.request(method, self.url, content=body, headers=headers)

    def legacy(self, body: dict[str, Any], version: str | None) -> httpx.Response:
        """Send a message as an older client does."""
        with httpx.Client(trust_env=False, timeout=60) as http:
            return http.post(**self.legacy_request(body, version))

    def legacy_request(self, body: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Return address, headers and body of a message of an older client."""
        headers = {**self.headers, "Accept": "application/json, text/event-stream"}
        if version is not None:
            headers["MCP-Protocol-Version"] = version
        return {"url": self.url, "json": body, "headers": headers}

    def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Return the result of a request that must succeed."""
        answer = self.post(method, params, **more).json()
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Return the error of a request that must fail."""
        answer = self.post(method, params, **more).json()
        assert "error" in answer, answer
        return answer["error"]

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        """Return the result of a tool's call."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **more)
