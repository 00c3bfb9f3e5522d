"""Admin pages of tasks: read in full, with the panel and the list actions that tell them what to do."""

import json
from typing import Any
from uuid import UUID, uuid4

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from typing_extensions import override

from tasks_app.admin.base import (
    ActPanel,
    Panel,
    PanelAct,
    ReadOnlyAdmin,
    code_column,
    json_column,
    read_whole,
    refusal_text,
)
from tasks_app.admin.panels import task_panels
from tasks_app.admission import commands
from tasks_app.admission.session import find_principal
from tasks_app.domain.errors import InvalidInputError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus, progress_of
from tasks_app.models import Task
from tasks_app.policy.capabilities import allows
from tasks_app.queries.snapshot import split_owner
from tasks_app.queries.tasks import is_cancelling
from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import ago, percent, pill, translated


class StatusFilter(admin.SimpleListFilter):
    """Narrow a list of tasks to one status."""

    title = gettext_lazy("status")
    parameter_name = "status"

    @override
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(s), str(words.look("task", s).word)) for s in TaskStatus]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        return queryset.filter(status=self.value()) if self.value() else queryset


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """Tasks: read in full, told what to do through the same admission as everywhere else."""

    list_display = ("title", "state", "progress", "phase_shown", "lease", "updated")
    list_filter = (StatusFilter, "workflow")
    search_fields = ("title", "id__startswith")
    search_help_text = gettext_lazy("Title, or the beginning of the id")
    ordering = ("-created_at", "-id")
    actions = ("pause_tasks", "resume_tasks", "cancel_tasks", "set_priority_of_tasks")
    fields = (
        "id", "workflow_and_version", "state", "progress", "phase_shown", "lease", "state_version",
        "plan_version", "priority", "recoveries_total", "started_by", "door", "created_at",
        "started_at", "finished_at", "goal_shown", "result_shown", "error_shown",
    )  # fmt: skip
    readonly_fields = fields

    @override
    def heading(self, obj: Task) -> str:
        return obj.title

    # --- columns --------------------------------------------------------------------------
    @admin.display(description=gettext_lazy("state"), ordering="status")
    def state(self, obj: Task) -> SafeString:
        return pill("task", obj.status, cancelling=is_cancelling(obj))

    @admin.display(description=gettext_lazy("progress"))
    def progress(self, obj: Task) -> str:
        share = progress_of(TaskStatus(obj.status), obj.progress_done, obj.progress_total)
        return percent(share) or "–"

    @admin.display(description=gettext_lazy("lease"))
    def lease(self, obj: Task) -> str:
        if obj.lease_owner is None:
            return "–"
        host, pid = split_owner(obj.lease_owner)
        return f"{host} #{pid}, {_('fence')} {obj.fence}"

    @admin.display(description=gettext_lazy("updated"), ordering="updated_at")
    def updated(self, obj: Task) -> SafeString:
        return ago(obj.updated_at)

    @admin.display(description=gettext_lazy("started by"))
    def started_by(self, obj: Task) -> str:
        return obj.initiator.get_username()

    @admin.display(description=gettext_lazy("workflow"))
    def workflow_and_version(self, obj: Task) -> str:
        return f"{obj.workflow} v{obj.workflow_version}"

    @admin.display(description=gettext_lazy("phase"))
    def phase_shown(self, obj: Task) -> str:
        return translated(obj.phase) or "–"

    door = code_column("source", "source", gettext_lazy("source"))
    goal_shown = json_column("goal", gettext_lazy("goal"))
    result_shown = json_column("result", gettext_lazy("result"))
    error_shown = json_column("error", gettext_lazy("error"))

    # --- panels ---------------------------------------------------------------------------
    @override
    def panels(self, principal: Principal, obj: Task) -> list[Panel]:
        return task_panels(principal, obj.pk)

    @override
    def act_panel(self, principal: Principal, obj: Task) -> ActPanel | None:
        if TaskStatus(obj.status) in TERMINAL:
            return None
        return ActPanel(
            url=reverse("admin:tasks_app_task_act", args=[obj.pk]),
            hidden={"expected_version": obj.state_version, "idempotency_key": uuid4()},
            acts=_task_acts(principal, obj),
            button="type",
            note=_("Acting on version %(version)s.") % {"version": obj.state_version},
        )

    # --- acting on one --------------------------------------------------------------------
    @override
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act)
        return [path("<uuid:task_id>/act/", act, name="tasks_app_task_act"), *super().get_urls()]

    @method_decorator(require_POST)
    def act(self, request: HttpRequest, task_id: UUID) -> HttpResponse:
        """Submit one command from the act panel."""
        word = words.COMMANDS.get(request.POST.get("type", ""), "")
        text = _("%(command)s accepted. It takes effect at the next safe point.")
        return self.acted(request, task_id, _submit, text % {"command": word})

    # --- acting on many -------------------------------------------------------------------
    @admin.action(description=gettext_lazy("Pause tasks…"))
    def pause_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "pause")

    @admin.action(description=gettext_lazy("Resume tasks…"))
    def resume_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "resume")

    @admin.action(description=gettext_lazy("Cancel tasks…"))
    def cancel_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "cancel")

    @admin.action(description=gettext_lazy("Set priority…"))
    def set_priority_of_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "set_priority")

    def _bulk(self, request: HttpRequest, queryset: QuerySet[Task], type_: str) -> HttpResponse:
        """Show what would change; on the second post submit one command for each row."""
        principal = find_principal(request)
        tasks = list(queryset[:100])
        if principal is None:
            return self.back(tasks[0])
        confirmed = request.POST.get("confirmed") == "yes"
        rows = [self._bulk_row(request, principal, task, type_, confirmed) for task in tasks]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Outcome") if confirmed else words.COMMANDS[type_],
            "rows": rows,
            "done": confirmed,
            "type": type_,
            "action": request.POST.get("action", ""),
            "reason": request.POST.get("reason", ""),
            "will": sum(1 for row in rows if row["will"]),
        }
        return TemplateResponse(request, "admin/rt/bulk.html", context)

    def _bulk_row(
        self, request: HttpRequest, principal: Principal, task: Task, type_: str, confirmed: bool
    ) -> dict[str, Any]:
        why = _skipped_because(principal, task, type_)
        row: dict[str, Any] = {
            "task": task,
            "will": not why,
            "text": why,
            "version": task.state_version,
            "key": uuid4(),
        }
        if why or not confirmed:
            return row
        posted = {
            "type": type_,
            "reason": request.POST.get("reason", ""),
            "priority": request.POST.get("priority", ""),
            "expected_version": request.POST.get(f"version-{task.pk}", ""),
            "idempotency_key": request.POST.get(f"key-{task.pk}", ""),
        }
        try:
            _submit(principal, task.pk, posted)
        except RuntimeFault as fault:
            return row | {"text": refusal_text(fault, posted["expected_version"]), "will": False}
        self.told(request, task, _("%(command)s accepted.") % {"command": words.COMMANDS[type_]})
        return row | {"text": _("accepted")}


def _submit(principal: Principal, task_id: UUID, posted: dict[str, str]) -> None:
    """Hand one command to admission, which decides everything."""
    commands.submit_command(
        principal,
        task_id=task_id,
        command_id=_read_key(posted.get("idempotency_key", "")),
        type=posted.get("type", ""),
        payload=_payload(posted),
        expected_version=read_whole(posted.get("expected_version", "")),
        reason=posted.get("reason", ""),
        source="admin",
    )


def _read_key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(_("The form is damaged. Load the page again.")) from None


def _payload(posted: dict[str, str]) -> dict[str, Any]:
    match posted.get("type"):
        case "set_priority":
            text = posted.get("priority", "")
            priority = read_whole(text)
            return {"priority": text if priority is None else priority}
        case "adjust_goal":
            return _read_patch(posted.get("patch", ""))
        case "provide_input":
            return {"answer": _read_answer(posted.get("answer", ""))}
        case _:
            return {}


def _read_patch(text: str) -> dict[str, Any]:
    try:
        patch = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidInputError(_("The change is not JSON: %(why)s") % {"why": error}) from None
    if not isinstance(patch, dict):
        raise InvalidInputError(_("The change must be a JSON object."))
    return patch


def _read_answer(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _task_acts(principal: Principal, task: Task) -> list[PanelAct]:
    """Return the buttons for a task's state, with what the person lacks for each."""

    def act(
        value: str, label: str, *, need: str = "tasks:steer", danger: bool = False, input_: str = ""
    ) -> PanelAct:
        denied = "" if allows(principal, need, task) else need
        return PanelAct(value, label, danger=danger, denied=denied, input=input_)

    acts = []
    if task.status != TaskStatus.DEAD_LETTERED:
        if task.status in {TaskStatus.PAUSED, TaskStatus.PAUSING}:
            acts.append(act("resume", _("Resume task")))
        else:
            acts.append(act("pause", _("Pause task")))
        if task.status == TaskStatus.INPUT_REQUIRED:
            acts.append(act("provide_input", _("Send answer"), input_="answer"))
        if not task.closing_as:
            acts.append(act("adjust_goal", _("Change goal"), input_="patch"))
        acts.append(act("set_priority", _("Set priority"), input_="priority"))
    if task.cancel_requested_at is None and not task.closing_as:
        acts.append(act("cancel", _("Cancel task"), need="tasks:cancel", danger=True))
    return acts


def _skipped_because(principal: Principal, task: Task, type_: str) -> str:
    status = TaskStatus(task.status)
    if status in TERMINAL:
        return _("already ended")
    need = "tasks:cancel" if type_ == "cancel" else "tasks:steer"
    if not allows(principal, need, task):
        return _("needs the capability %(cap)s") % {"cap": need}
    if type_ == "resume" and status not in {TaskStatus.PAUSED, TaskStatus.PAUSING}:
        return _("is not paused")
    return ""
