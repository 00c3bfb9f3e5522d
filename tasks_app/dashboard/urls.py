"""Routes of the pages."""

from django.urls import path

from tasks_app.dashboard import (
    account,
    approving,
    creating,
    held,
    repairing,
    steering,
    tasks,
    telling,
)

app_name = "dashboard"
urlpatterns = [
    path("", tasks.index, name="index"),
    path("login/", account.sign_in, name="login"),
    path("logout/", account.sign_out, name="logout"),
    path("tenant/", account.set_tenant, name="tenant"),
    path("theme/", account.set_theme, name="theme"),
    path("language/", account.set_language, name="language"),
    path("tasks/", tasks.task_list, name="tasks"),
    path("tasks/live/", tasks.task_list_live, name="tasks-live"),
    path("tasks/many/<slug:kind>/", telling.many, name="many"),
    path("tasks/new/", creating.choose, name="new"),
    path("tasks/new/<str:workflow>/", creating.create, name="new-form"),
    path("tasks/<uuid:task_id>/", tasks.task, name="task"),
    path("tasks/<uuid:task_id>/live/", tasks.task_live, name="task-live"),
    path("tasks/<uuid:task_id>/steer/", steering.steer, name="steer"),
    path("tasks/<uuid:task_id>/repair/", repairing.repair, name="repair"),
    path("tasks/<uuid:task_id>/goal/", steering.goal, name="goal"),
    path("tasks/<uuid:task_id>/<slug:tab>/", tasks.task, name="task-tab"),
    path("artifacts/<uuid:artifact_id>/", tasks.artifact, name="artifact"),
    path("dead-letters/", held.index, name="held"),
    path("dead-letters/live/", held.index_live, name="held-live"),
    path("dead-letters/<slug:cause>/", held.cause, name="held-cause"),
    path("dead-letters/<slug:cause>/<slug:verb>/", held.many, name="held-many"),
    path("approvals/", approving.inbox, name="approvals"),
    path("approvals/live/", approving.inbox_live, name="approvals-live"),
    path("approvals/<uuid:approval_id>/", approving.approval, name="approval"),
]
