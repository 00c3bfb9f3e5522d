"""Admin pages of what execution leaves behind: threads, steps, slices, checkpoints, outputs."""

from typing import Any, ClassVar

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admin.base import (
    Panel,
    ReadOnlyAdmin,
    code_column,
    code_filter,
    json_block,
    json_column,
    link,
    pill_column,
    state_filter,
    word_filter,
    yes_column,
)
from tasks_app.domain.principal import Principal
from tasks_app.models import (
    Artifact,
    Attempt,
    Checkpoint,
    Event,
    Outbox,
    PlanVersion,
    Slice,
    Step,
    Task,
    Thread,
)
from tasks_app.queries.checkpoints import checkpoint_row
from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import media, pill, short, size, step_kind


class OfTask(ReadOnlyAdmin):
    """Pages of rows that belong to a task."""

    list_select_related: ClassVar[Any] = ("task",)

    @admin.display(description=gettext_lazy("task"))
    def task_link(self, obj: Any) -> SafeString:
        return link("tasks_app_task", obj.task_id, obj.task.title)


@admin.register(Thread)
class ThreadAdmin(ReadOnlyAdmin):
    """Threads of a tenant."""

    list_display = ("key", "owned_by", "updated_at")
    list_select_related = ("owner",)
    search_fields = ("key", "id__startswith")
    ordering = ("-updated_at",)
    fields = readonly_fields = (
        "id",
        "key",
        "owned_by",
        "metadata_shown",
        "created_at",
        "updated_at",
    )

    @admin.display(description=gettext_lazy("owner"))
    def owned_by(self, obj: Thread) -> str:
        return obj.owner.get_username()

    metadata_shown = json_column("metadata", gettext_lazy("metadata"))

    @override
    def panels(self, principal: Principal, obj: Thread) -> list[Panel]:
        tasks = Task.objects.visible_to(principal).filter(thread_id=obj.pk).order_by("-created_at")
        rows = [
            (link("tasks_app_task", task.pk, task.title), pill("task", task.status), short(task.pk))
            for task in tasks[:50]
        ]
        return [Panel(_("Tasks"), (_("Title"), _("State"), _("Id")), rows)]


@admin.register(Step)
class StepAdmin(OfTask):
    """Steps of plans."""

    list_display = ("key", "task_link", "state", "attempts", "started_at", "finished_at")
    list_filter = (("status", state_filter("step")), ("kind", word_filter(step_kind)))
    search_fields = ("key", "task__id__startswith")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "key", "kind_shown", "method", "state", "attempts", "plan_version", "retired_in",
        "next_item", "items_failed", "started_at", "finished_at", "arguments_shown",
        "error_shown",
    )  # fmt: skip

    state = pill_column("step")

    @admin.display(description=gettext_lazy("kind"), ordering="kind")
    def kind_shown(self, obj: Step) -> str:
        return step_kind(obj.kind)

    arguments_shown = json_column("arguments", gettext_lazy("arguments"))
    error_shown = json_column("error", gettext_lazy("error"))


@admin.register(Attempt)
class AttemptAdmin(OfTask):
    """Tries that did not succeed."""

    list_display = ("step_key", "number", "task_link", "fence", "ended_at", "retry_at")
    list_select_related = ("task", "step")
    search_fields = ("step__key", "task__id__startswith")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "step_key", "number", "fence", "started_at", "ended_at", "retry_at",
        "error_shown",
    )  # fmt: skip

    @admin.display(description=gettext_lazy("step"))
    def step_key(self, obj: Attempt) -> str:
        return obj.step.key

    error_shown = json_column("error", gettext_lazy("error"))


@admin.register(Slice)
class SliceAdmin(OfTask):
    """What each delivery executed."""

    list_display = ("fence", "task_link", "worker", "started_at", "ended_at", "ending")
    list_filter = (("outcome", code_filter("outcome")), "recovered")
    search_fields = ("task__id__startswith", "worker")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "fence", "worker", "took_over", "ending", "steps", "started_at", "ended_at",
    )  # fmt: skip

    took_over = yes_column("recovered", gettext_lazy("took over"))
    ending = code_column("outcome", "outcome", gettext_lazy("outcome"))


@admin.register(Checkpoint)
class CheckpointAdmin(OfTask):
    """Checkpoints; the checksum is verified when a page is shown."""

    list_display = ("number", "task_link", "next_step", "schema_version", "why", "created_at")
    list_filter = ("schema_version", ("reason", code_filter("checkpoint")))
    search_fields = ("task__id__startswith",)
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "seq", "next_step", "plan_version", "schema_version", "why", "fence",
        "sha256", "verified", "created_at", "document_shown",
    )  # fmt: skip

    @admin.display(description=gettext_lazy("number"), ordering="seq")
    def number(self, obj: Checkpoint) -> str:
        return f"#{obj.seq}"

    why = code_column("checkpoint", "reason", gettext_lazy("reason"))

    @admin.display(description=gettext_lazy("checksum"))
    def verified(self, obj: Checkpoint) -> str:
        return _("verified") if checkpoint_row(obj).verified else _("mismatch")

    @admin.display(description=gettext_lazy("document"))
    def document_shown(self, obj: Checkpoint) -> SafeString:
        return json_block(checkpoint_row(obj).document)


@admin.register(PlanVersion)
class PlanVersionAdmin(OfTask):
    """Why each plan was made and what it changed."""

    list_display = ("version", "task_link", "why", "workflow_version", "created_at")
    list_filter = (("cause", code_filter("plan")),)
    search_fields = ("task__id__startswith",)
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "version", "why", "workflow_version", "command_id", "actor", "created_at",
        "difference_shown",
    )  # fmt: skip

    why = code_column("plan", "cause", gettext_lazy("cause"))
    difference_shown = json_column("difference", gettext_lazy("difference"))


@admin.register(Event)
class EventAdmin(OfTask):
    """The journal."""

    list_display = ("seq", "what", "task_link", "at")
    list_filter = (("type", state_filter("event")),)
    search_fields = ("task__id__startswith",)
    ordering = ("-id",)
    fields = readonly_fields = ("task_link", "seq", "what", "at", "data_shown")

    @admin.display(description=gettext_lazy("type"), ordering="type")
    def what(self, obj: Event) -> str:
        return str(words.look("event", obj.type).word)

    data_shown = json_column("data", gettext_lazy("data"))


@admin.register(Outbox)
class OutboxAdmin(OfTask):
    """Messages owed to the broker."""

    list_display = ("kind", "reason", "task_link", "created_at", "sent_at", "tries")
    search_fields = ("task__id__startswith",)
    ordering = ("next_try_at",)
    fields = readonly_fields = (
        "task_link", "kind", "reason", "created_at", "sent_at", "tries", "next_try_at",
    )  # fmt: skip


@admin.register(Artifact)
class ArtifactAdmin(OfTask):
    """Stored outputs."""

    capability = "artifacts:read"
    list_display = ("name", "task_link", "kind_shown", "size_shown", "delivered", "created_at")
    list_filter = ("presented", ("media_type", word_filter(media)))
    search_fields = ("name", "sha256__startswith", "task__id__startswith")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "task_link", "name", "kind_shown", "size_shown", "sha256", "delivered", "step_key",
        "created_at", "download",
    )  # fmt: skip

    delivered = yes_column("presented", gettext_lazy("delivered"))

    @admin.display(description=gettext_lazy("type"), ordering="media_type")
    def kind_shown(self, obj: Artifact) -> str:
        return media(obj.media_type)

    @admin.display(description=gettext_lazy("size"), ordering="size_bytes")
    def size_shown(self, obj: Artifact) -> str:
        return size(obj.size_bytes)

    @admin.display(description=gettext_lazy("content"))
    def download(self, obj: Artifact) -> SafeString:
        address = reverse("dashboard:artifact", args=[obj.pk])
        return format_html('<a href="{}" download>{}</a>', address, _("Download"))
