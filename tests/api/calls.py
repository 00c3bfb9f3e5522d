"""How tests speak to REST: one caller, JSON in, JSON out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml
from django.contrib.auth.models import User
from django.test import Client

from tasks_app.api.reference import schema_text
from tasks_app.models import Tenant
from tasks_app.policy.capabilities import CAPABILITIES
from tests.factories import make_api_key, make_member

ALL_SCOPES = tuple(CAPABILITIES)


@cache
def openapi() -> Any:
    """Return the OpenAPI document, read once and not to be changed; 200 kB take their time."""
    return yaml.load(schema_text(), Loader=yaml.CSafeLoader)


@dataclass
class Api:
    """A caller with an API key (or none)."""

    key: str = ""
    user: User | None = None
    client: Client = field(default_factory=Client)

    def get(self, path: str, **headers: str) -> Any:
        """Return the answer to a GET."""
        return self.client.get(path, headers=self.headers(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """Return the answer to a POST; text and bytes are sent as they are."""
        data = body if isinstance(body, str | bytes) else json.dumps({} if body is None else body)
        return self.client.post(
            path, data, content_type="application/json", headers=self.headers(headers)
        )

    def headers(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        """Return the headers of a request, with the key unless another one is given."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"Authorization": f"Bearer {self.key}", **named} if self.key else named


def api_of(tenant: Tenant, *roles: str, scopes: tuple[str, ...] = ALL_SCOPES) -> Api:
    """Return a caller who is a new member with these roles and uses a key."""
    user = make_member(tenant, roles)
    _, text = make_api_key(tenant, user, scopes)
    return Api(text, user)


def task_body(**overrides: Any) -> dict[str, Any]:
    """Return a body that starts a scripted task."""
    script = [{"op": "say", "text": "hello"}]
    return {"workflow": "scripted", "goal": {"script": script}, **overrides}


def without_id(answer: Any) -> dict[str, Any]:
    """Return a problem without what differs in every answer."""
    body: dict[str, Any] = answer.json()
    assert body.pop("requestId")
    return body
