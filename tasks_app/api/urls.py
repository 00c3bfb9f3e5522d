"""Routes under /runtime; none ends in a slash."""

from django.urls import URLPattern, URLResolver, include, path, re_path

from tasks_app.api import (
    approvals,
    budgets,
    bulk,
    catalogue,
    commands,
    files,
    histories,
    keys,
    reference,
    repairs,
    schedules,
    stream,
    streamed,
    tasks,
    threads,
    webhooks,
)

app_name = "runtime"

_resources: list[URLPattern | URLResolver] = [
    path("tasks", tasks.TaskListView.as_view(), name="tasks"),
    path("tasks/<uuid:task_id>", tasks.TaskView.as_view(), name="task"),
    path("tasks/<uuid:task_id>/commands", commands.CommandListView.as_view(), name="commands"),
    path("tasks/<uuid:task_id>/repairs", repairs.RepairListView.as_view(), name="task-repairs"),
    path("commands", bulk.CommandManyView.as_view(), name="bulk-commands"),
    path("repairs", repairs.RepairManyView.as_view(), name="repairs"),
    path("dead-letters", repairs.HeldListView.as_view(), name="dead-letters"),
    path("dead-letters/causes", repairs.CauseListView.as_view(), name="dead-letter-causes"),
    path("tasks/<uuid:task_id>/steps", histories.StepListView.as_view(), name="steps"),
    path("tasks/<uuid:task_id>/slices", histories.SliceListView.as_view(), name="slices"),
    path("tasks/<uuid:task_id>/attempts", histories.AttemptListView.as_view(), name="attempts"),
    path("tasks/<uuid:task_id>/plans", histories.PlanListView.as_view(), name="plans"),
    path(
        "tasks/<uuid:task_id>/checkpoints",
        histories.CheckpointListView.as_view(),
        name="checkpoints",
    ),
    path("tasks/<uuid:task_id>/effects", histories.EffectListView.as_view(), name="effects"),
    path("tasks/<uuid:task_id>/artifacts", histories.ArtifactListView.as_view(), name="artifacts"),
    path("tasks/<uuid:task_id>/journal", histories.JournalView.as_view(), name="journal"),
    path("tasks/<uuid:task_id>/audit", histories.AuditView.as_view(), name="audit"),
    path("artifacts/<uuid:artifact_id>", files.ArtifactView.as_view(), name="artifact"),
    path(
        "artifacts/<uuid:artifact_id>/content",
        files.ArtifactContentView.as_view(),
        name="artifact-content",
    ),
    path("approvals", approvals.ApprovalListView.as_view(), name="approvals"),
    path("approvals/<uuid:approval_id>", approvals.ApprovalView.as_view(), name="approval"),
    path(
        "approvals/<uuid:approval_id>/decision", approvals.DecisionView.as_view(), name="decision"
    ),
    path("threads", threads.ThreadListView.as_view(), name="threads"),
    path("workflows", catalogue.WorkflowListView.as_view(), name="workflows"),
    path("whoami", catalogue.WhoAmIView.as_view(), name="whoami"),
    path("budgets", budgets.BudgetListView.as_view(), name="budgets"),
    path("prices", budgets.PriceListView.as_view(), name="prices"),
    path("schedules", schedules.ScheduleListView.as_view(), name="schedules"),
    path("schedules/<uuid:schedule_id>", schedules.ScheduleView.as_view(), name="schedule"),
    path(
        "schedules/<uuid:schedule_id>/pause",
        schedules.SchedulePauseView.as_view(),
        name="schedule-pause",
    ),
    path(
        "schedules/<uuid:schedule_id>/resume",
        schedules.ScheduleResumeView.as_view(),
        name="schedule-resume",
    ),
    path(
        "schedules/<uuid:schedule_id>/fire",
        schedules.ScheduleFireView.as_view(),
        name="schedule-fire",
    ),
    path(
        "schedules/<uuid:schedule_id>/delete",
        schedules.ScheduleDeleteView.as_view(),
        name="schedule-delete",
    ),
    path("webhooks", webhooks.WebhookListView.as_view(), name="webhooks"),
    path(
        "webhooks/<uuid:webhook_id>/rotate",
        webhooks.WebhookRotateView.as_view(),
        name="webhook-rotate",
    ),
    path(
        "webhooks/<uuid:webhook_id>/disable",
        webhooks.WebhookDisableView.as_view(),
        name="webhook-disable",
    ),
    path(
        "webhooks/<uuid:webhook_id>/enable",
        webhooks.WebhookEnableView.as_view(),
        name="webhook-enable",
    ),
    path(
        "webhooks/<uuid:webhook_id>/deliveries",
        webhooks.WebhookDeliveriesView.as_view(),
        name="webhook-deliveries",
    ),
    path("keys", keys.KeyListView.as_view(), name="keys"),
    path("keys/<uuid:key_id>/rotate", keys.KeyRotateView.as_view(), name="key-rotate"),
    path("keys/<uuid:key_id>/revoke", keys.KeyRevokeView.as_view(), name="key-revoke"),
]

urlpatterns = [
    *_resources,
    path("tasks/<uuid:task_id>/events", stream.task_events, name="events"),
    path("schema", reference.SchemaView.as_view(), name="schema"),
    path("docs", reference.docs, name="docs"),
    re_path(r"^(?P<path>.*)$", catalogue.NothingHereView.as_view(), name="nothing"),
]


def documented_patterns() -> list[URLResolver]:
    """Return the routes that the OpenAPI document describes, at their full address."""
    streams = path("tasks/<uuid:task_id>/events", streamed.TaskEventsDescription.as_view())
    return [path("runtime/", include(([*_resources, streams], app_name)))]
