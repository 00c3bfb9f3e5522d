"""Threads' runs and states, and schedules: read-only."""

from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admin.base import ReadOnlyAdmin, json_column, link
from tasks_app.models import Run, Schedule, ThreadState


class _OfThread(ReadOnlyAdmin):
    @admin.display(description=gettext_lazy("thread"))
    def thread_link(self, obj: Any) -> SafeString:
        return link("tasks_app_thread", obj.thread_id, obj.thread.key)


@admin.register(Run)
class RunAdmin(_OfThread):
    """Tasks in their threads."""

    list_display = ("thread_link", "number", "task_link", "slot", "strategy", "cancel_action")
    list_select_related = ("thread", "task")
    search_fields = ("thread__key", "task__id__startswith")
    ordering = ("-thread_id", "-number")
    fields = readonly_fields = (
        "thread_link", "number", "task_link", "slot", "strategy", "cancel_action", "cancel_reason",
        "not_before", "disconnect_deadline", "hidden_at", "request_shown", "metadata_shown",
    )  # fmt: skip

    @admin.display(description=gettext_lazy("task"))
    def task_link(self, obj: Run) -> SafeString:
        return link("tasks_app_task", obj.task_id, obj.task.title)

    request_shown = json_column("request", gettext_lazy("request"))
    metadata_shown = json_column("metadata", gettext_lazy("metadata"))


@admin.register(ThreadState)
class ThreadStateAdmin(_OfThread):
    """What runs left in their threads."""

    list_display = ("thread_link", "seq", "source", "created_at")
    list_select_related = ("thread",)
    search_fields = ("thread__key", "id__startswith")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "id", "thread_link", "seq", "source", "created_at", "values_shown", "metadata_shown",
    )  # fmt: skip

    values_shown = json_column("values", gettext_lazy("values"))
    metadata_shown = json_column("metadata", gettext_lazy("metadata"))


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """What is started when."""

    list_display = (
        "name",
        "workflow",
        "cron",
        "interval_seconds",
        "fires_at",
        "paused_at",
        "fired",
    )
    search_fields = ("name", "id__startswith")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "id", "name", "owned_by", "workflow", "cron", "interval_seconds", "time_zone", "overlap",
        "catch_up_limit", "jitter_seconds", "due_at", "fires_at", "paused_at", "pause_reason",
        "fired", "skipped", "last_fired_at", "last_task_link", "last_error_shown", "goal_shown",
    )  # fmt: skip

    @override
    def heading(self, obj: Schedule) -> str:
        return obj.name

    @admin.display(description=gettext_lazy("owner"))
    def owned_by(self, obj: Schedule) -> str:
        return obj.owner.get_username()

    @admin.display(description=gettext_lazy("last task"))
    def last_task_link(self, obj: Schedule) -> SafeString | str:
        if obj.last_task is None:
            return "–"
        return link("tasks_app_task", obj.last_task_id, obj.last_task.title)

    goal_shown = json_column("goal", gettext_lazy("goal"))
    last_error_shown = json_column("last_error", gettext_lazy("last error"))
