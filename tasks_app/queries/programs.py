"""The programs that a person has let in, read from the authorization server's tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now


@dataclass(frozen=True, slots=True)
class Program:
    """A client that can act for the person now, or fetch a token by which it can."""

    client_id: str
    name: str
    scopes: tuple[str, ...]
    since: datetime


def list_programs(user_id: int) -> list[Program]:
    """Return a person's programs by name; a client with several tokens is one."""
    rows = apps.get_model("oauth2_provider", "AccessToken").objects.filter(user_id=user_id)
    renewable = Q(
        refresh_token__isnull=False,
        refresh_token__revoked__isnull=True,
        expires__gt=Now() - timedelta(seconds=settings.MCP_REFRESH_SECONDS),
    )
    alive = rows.filter(Q(expires__gt=Now()) | renewable).select_related("application")
    by_client: dict[str, list[Any]] = {}
    for token in alive.order_by("application__name", "created"):
        by_client.setdefault(token.application.client_id, []).append(token)
    return [_program(tokens) for tokens in by_client.values()]


def _program(tokens: list[Any]) -> Program:
    client = tokens[0].application
    scopes: Iterable[str] = {scope for token in tokens for scope in token.scope.split()}
    return Program(
        client.client_id, client.name or client.client_id, tuple(sorted(scopes)), tokens[0].created
    )
