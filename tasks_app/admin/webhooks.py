"""Webhook endpoints and what they were told: read-only."""

from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admin.base import ReadOnlyAdmin, link
from tasks_app.models import WebhookDelivery, WebhookEndpoint


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    """Who is told about tasks."""

    capability = "webhooks:manage"
    list_display = ("url", "hears_all", "failures", "disabled_at")
    search_fields = ("url", "id__startswith")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "id", "url", "hears_all", "failures", "next_try_at", "disabled_at", "disabled_reason",
        "previous_until", "created_at",
    )  # fmt: skip

    @override
    def heading(self, obj: Any) -> str:
        return str(obj)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin):
    """What they were told."""

    capability = "webhooks:manage"
    list_display = ("id", "task_link", "status", "endpoint_link", "state", "tries", "last_error")
    list_select_related = ("task", "endpoint")
    search_fields = ("task__id__startswith", "endpoint__url")
    ordering = ("-id",)
    fields = readonly_fields = (
        "id", "task_link", "seq", "status", "endpoint_link", "state", "tries", "next_try_at",
        "last_status", "last_error", "created_at", "settled_at",
    )  # fmt: skip

    @admin.display(description=gettext_lazy("task"))
    def task_link(self, obj: WebhookDelivery) -> SafeString:
        return link("tasks_app_task", obj.task_id, obj.task.title)

    @admin.display(description=gettext_lazy("endpoint"))
    def endpoint_link(self, obj: WebhookDelivery) -> SafeString:
        return link("tasks_app_webhookendpoint", obj.endpoint_id, obj.endpoint.url)
