"""API keys over REST: make, list, rotate, revoke."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission.keys import CreatedKey, create_key, revoke_key, rotate_key
from tasks_app.api.base import RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import KeyInput, ReasonInput, RotateInput
from tasks_app.api.lists import KeyListQuery
from tasks_app.api.outputs import KeyCreated, KeyOut, KeyPage
from tasks_app.queries.keys import list_keys


class KeyListView(RuntimeView):
    """The caller's keys; an admin sees the tenant's."""

    capabilities: ClassVar = {"GET": "keys:manage", "POST": "keys:manage"}
    query_models: ClassVar = {"GET": KeyListQuery}

    @documented("listKeys", "List API keys", capability="keys:manage", query=KeyListQuery,
                returns=KeyPage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return keys without their secrets, newest first."""
        return self.page(KeyOut, list_keys)

    @documented(
        "createKey",
        "Make an API key",
        capability="keys:manage",
        body=KeyInput,
        returns=KeyCreated,
        status=201,
        codes=("not_found",),
        example={"name": "nightly import", "scopes": ["tasks:create", "tasks:read"], "days": 30},
        keeps=True,
    )
    def post(self, request: Request) -> Response:
        """Make a key and show it this once."""
        body = self.body(KeyInput)

        def act() -> Response:
            made = create_key(
                self.principal,
                name=body.name,
                scopes=body.scopes,
                days=body.days,
                allowed_cidrs=body.allowed_cidrs,
                agent_id=body.owner_agent,
                request_id=self.request_id,
            )
            return _created(made)

        return self.once(act, hidden={"key"})


class KeyRotateView(RuntimeView):
    """A new key for an old one."""

    capabilities: ClassVar = {"POST": "keys:manage"}

    @documented("rotateKey", "Rotate an API key", capability="keys:manage", body=RotateInput,
                returns=KeyCreated, status=201, keeps=True)  # fmt: skip
    def post(self, request: Request, key_id: UUID) -> Response:
        """Make the key that replaces this one; the old one ends within 24 hours."""
        body = self.body(RotateInput)

        def act() -> Response:
            made = rotate_key(
                self.principal, key_id=key_id, days=body.days, request_id=self.request_id
            )
            return _created(made)

        return self.once(act, hidden={"key"})


class KeyRevokeView(RuntimeView):
    """The end of a key."""

    capabilities: ClassVar = {"POST": "keys:manage"}

    @documented("revokeKey", "Revoke an API key", capability="keys:manage", body=ReasonInput,
                returns=None, status=204, keeps=True)  # fmt: skip
    def post(self, request: Request, key_id: UUID) -> Response:
        """End the key for ever."""
        body = self.body(ReasonInput)

        def act() -> Response:
            revoke_key(
                self.principal, key_id=key_id, reason=body.reason, request_id=self.request_id
            )
            return Response(status=204)

        return self.once(act)


def _created(made: CreatedKey) -> Response:
    shown = KeyCreated.of(made, key=made.text)
    return answer(shown, status=201, headers={"Cache-Control": "no-store"})
