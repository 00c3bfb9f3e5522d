"""Routes under /api for LangGraph clients; none ends in a slash (R6)."""

from django.urls import path, re_path

from tasks_app.api import catalogue
from tasks_app.api.langgraph import assistants, histories, runs, streams, threads

app_name = "langgraph"

_RUN = "threads/<str:thread_id>/runs/<uuid:run_id>"

urlpatterns = [
    path("ok", assistants.OkView.as_view(), name="ok"),
    path("info", assistants.InfoView.as_view(), name="info"),
    path("assistants/search", assistants.AssistantSearchView.as_view(), name="assistant-search"),
    path("assistants/count", assistants.AssistantCountView.as_view(), name="assistant-count"),
    path("assistants/<str:assistant_id>", assistants.AssistantView.as_view(), name="assistant"),
    path("assistants/<str:assistant_id>/graph", assistants.GraphView.as_view(), name="graph"),
    path("assistants/<str:assistant_id>/schemas", assistants.SchemasView.as_view(), name="schemas"),
    path("threads", threads.ThreadListView.as_view(), name="threads"),
    path("threads/search", threads.ThreadSearchView.as_view(), name="thread-search"),
    path("threads/count", threads.ThreadCountView.as_view(), name="thread-count"),
    path("threads/<str:thread_id>", threads.ThreadView.as_view(), name="thread"),
    path("threads/<str:thread_id>/state", threads.StateView.as_view(), name="state"),
    path(
        "threads/<str:thread_id>/state/checkpoint", threads.StateAtView.as_view(), name="state-at"
    ),
    path(
        "threads/<str:thread_id>/state/<str:checkpoint_id>",
        threads.PastStateView.as_view(),
        name="past-state",
    ),
    path("threads/<str:thread_id>/history", threads.HistoryView.as_view(), name="history"),
    path(
        "threads/<str:thread_id>/messages", histories.ThreadMessagesView.as_view(), name="messages"
    ),
    path(
        "threads/<str:thread_id>/messages/page",
        histories.ThreadMessagesPageView.as_view(),
        name="messages-page",
    ),
    path("threads/<str:thread_id>/token-usage", histories.TokenUsageView.as_view(), name="usage"),
    path("threads/<str:thread_id>/runs", runs.RunListView.as_view(), name="runs"),
    path("threads/<str:thread_id>/runs/stream", streams.create_stream, name="create-stream"),
    path("threads/<str:thread_id>/runs/wait", streams.create_wait, name="create-wait"),
    path("threads/<str:thread_id>/runs/page", runs.RunPageView.as_view(), name="runs-page"),
    path(_RUN, runs.RunView.as_view(), name="run"),
    path(f"{_RUN}/join", streams.run_join, name="join"),
    path(f"{_RUN}/stream", streams.run_stream, name="stream"),
    path(f"{_RUN}/cancel", streams.run_cancel, name="cancel"),
    path(f"{_RUN}/messages", histories.RunMessagesView.as_view(), name="run-messages"),
    path(f"{_RUN}/events", histories.RunEventsView.as_view(), name="run-events"),
    path(f"{_RUN}/workspace-changes", histories.WorkspaceChangesView.as_view(), name="workspace"),
    path("runs", runs.StatelessRunView.as_view(), name="stateless"),
    path("runs/stream", streams.create_stream, name="stateless-stream"),
    path("runs/wait", streams.create_wait, name="stateless-wait"),
    path("runs/batch", runs.BatchView.as_view(), name="batch"),
    path("runs/cancel", runs.CancelManyView.as_view(), name="cancel-many"),
    path("runs/<uuid:run_id>/stream", streams.run_stream, name="loose-stream"),
    path("runs/<uuid:run_id>/messages", histories.RunMessagesView.as_view(), name="loose-messages"),
    re_path(r"^(?P<path>.*)$", catalogue.NothingHereView.as_view(), name="nothing"),
]
