"""The OpenAPI document and its page: for signed-in callers unless the installation opens them."""

from functools import cache
from typing import Any, ClassVar

import yaml
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import translation
from django.views.decorators.http import require_GET
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from rest_framework.request import Request
from typing_extensions import override

from tasks_app.api.base import SIGNED_IN, RuntimeView
from tasks_app.api.links import add_links
from tasks_app.conf import runtime


class SchemaView(RuntimeView):
    """The OpenAPI document of these routes."""

    capabilities: ClassVar = {"GET": SIGNED_IN}
    schema = None

    @override
    def get_permissions(self) -> list[Any]:
        return [] if runtime().public_schema else list(super().get_permissions())

    def get(self, request: Request) -> HttpResponse:
        """Return the document as YAML."""
        return HttpResponse(schema_text(), content_type="application/vnd.oai.openapi")


@require_GET
def docs(request: HttpRequest) -> HttpResponse:
    """Show the document in a page that loads nothing from elsewhere and runs no inline script."""
    if not (runtime().public_schema or request.user.is_authenticated):
        return redirect(f"{reverse('dashboard:login')}?next={request.path}")
    sidecar = "drf_spectacular_sidecar/swagger-ui-dist"
    page = render_to_string(
        "runtime/docs.html",
        {
            "schema_url": reverse("runtime:schema"),
            "style": static(f"{sidecar}/swagger-ui.css"),
            "bundle": static(f"{sidecar}/swagger-ui-bundle.js"),
            "start": static("rt/api-docs.js"),
            "icon": static("rt/favicon.svg"),
            "csrf": get_token(request),
        },
        request=None,
    )
    return HttpResponse(page)


docs.capability = SIGNED_IN  # type: ignore[attr-defined]


@cache
def schema_text() -> str:
    """Return the OpenAPI document of /runtime as YAML, the same for every caller; made once."""
    from tasks_app.api import urls

    # The models' schemas are of JSON Schema 2020-12, which OpenAPI knows since 3.1.
    with patched_settings({"OAS_VERSION": "3.1.0"}), translation.override("en"):
        generator: Any = SchemaGenerator(patterns=urls.documented_patterns())  # type: ignore[no-untyped-call]
        document = generator.get_schema(request=None, public=True)
    add_links(document)
    text: str = yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=100)
    return text


def _plain(value: Any) -> Any:
    """Return the document without the titles that models make of field names."""
    if isinstance(value, dict):
        return {
            key: _plain(part)
            for key, part in value.items()
            if not (key == "title" and isinstance(part, str) and "openapi" not in value
                    and "version" not in value)
        }  # fmt: skip
    return [_plain(part) for part in value] if isinstance(value, list) else value
