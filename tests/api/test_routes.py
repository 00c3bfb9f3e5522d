"""Every way in declares what it needs: REST, streams, pages and admin (security S13)."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.urls import URLPattern, URLResolver, get_resolver

from tasks_app.api.base import PUBLIC, SIGNED_IN, RuntimeView
from tasks_app.policy.capabilities import CAPABILITIES

KNOWN = {*CAPABILITIES, SIGNED_IN, PUBLIC}
METHODS = ("get", "post", "put", "patch", "delete")

# Routes that show and change nothing of a tenant, each with the reason.
OPEN = {
    "livez": "says that the process answers",
    "readyz": "says that the database answers",
    "dashboard:login": "the way in",
    "dashboard:logout": "the way out",
    "dashboard:tenant": "chooses among one's own tenants",
    "dashboard:theme": "a colour",
    "dashboard:language": "a language",
}

# Accounts of the installation, not of a tenant: Django's own permissions, so superusers only.
OPEN_MODELS = {"User", "Group"}

MODELS: list[type[Model]] = sorted(admin.site._registry, key=lambda model: str(model))


def routes(
    patterns: Any = None, prefix: str = "", names: str = ""
) -> Iterator[tuple[str, str, URLPattern]]:
    """Yield address, name and pattern of every route but the admin's."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        place = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.namespace == "admin":
                continue
            inner = f"{names}{pattern.namespace}:" if pattern.namespace else names
            yield from routes(pattern.url_patterns, place, inner)
        else:
            yield place, f"{names}{pattern.name}", pattern


def needs_of(pattern: URLPattern) -> set[str] | None:
    """Return what a route declares; None when it declares nothing."""
    view = getattr(pattern.callback, "view_class", None)
    if view is not None and issubclass(view, RuntimeView):
        found: set[str] = set()
        for method in (method for method in METHODS if hasattr(view, method)):
            needed = view.capabilities.get(method.upper())
            if needed is None:
                return None
            found.update([needed] if isinstance(needed, str) else needed)
        return found
    by_method = getattr(pattern.callback, "capabilities", None)
    if by_method is not None:
        return set(by_method.values())
    declared = getattr(pattern.callback, "capability", None)
    return None if declared is None else {declared}


@pytest.mark.parametrize(
    ("place", "name", "pattern"), [pytest.param(*route, id=route[0]) for route in routes()]
)
def test_route_declares_what_it_needs(place: str, name: str, pattern: URLPattern) -> None:
    """A route without a capability does not get in."""
    if name in OPEN:
        return
    declared = needs_of(pattern)
    assert declared, f"{place} declares nothing"
    assert declared <= KNOWN


@pytest.mark.parametrize("model", MODELS)
def test_admin_page_declares_what_it_needs(model: type[Model]) -> None:
    """Each model page names the capability without which it is empty."""
    if model.__name__ in OPEN_MODELS:
        return
    declared = getattr(admin.site._registry[model], "capability", None)
    assert declared in CAPABILITIES, model.__name__


@pytest.mark.parametrize(("place", "name", "pattern"), [
    pytest.param(*route, id=route[0]) for route in routes()
    if route[0].startswith(("runtime/", "api/"))
])  # fmt: skip
def test_rest_routes_end_without_a_slash(place: str, name: str, pattern: URLPattern) -> None:
    """R6: a redirect would turn a POST into nothing."""
    assert not place.endswith("/")
