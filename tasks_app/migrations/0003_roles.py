"""What the roles of the processes may do with the tables of this app and of Django's own.

Nobody deletes but where the product deletes: answered messages and ended sessions. Histories take
new rows only; their triggers refuse changes from everybody.
"""

from django.db import migrations

from ledger_app.sql import READONLY, RUNTIME_ROLES, WEB, WORKER, grant_sql, revoke_sql

READ = ("SELECT",)
ADD = ("SELECT", "INSERT")
CHANGE = ("SELECT", "INSERT", "UPDATE")
ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")

GRANTS = [
    *(
        (f"tasks_app_{name}", CHANGE, RUNTIME_ROLES)
        for name in (
            "task",
            "thread",
            "step",
            "slice",
            "approval",
            "steeringcommand",
            "agentidentity",
        )
    ),
    *(
        (f"tasks_app_{name}", ADD, RUNTIME_ROLES)
        for name in (
            "checkpoint",
            "event",
            "approvaldecision",
            "steprange",
            "attempt",
            "artifact",
        )
    ),
    ("tasks_app_outbox", ALL, RUNTIME_ROLES),
    ("tasks_app_tenant", CHANGE, (WEB,)),
    ("tasks_app_membership", CHANGE, (WEB,)),
    ("tasks_app_apikey", CHANGE, (WEB,)),
    *((f"tasks_app_{name}", READ, (WORKER,)) for name in ("tenant", "membership", "apikey")),
    ("auth_user", CHANGE, (WEB,)),
    ("auth_user", READ, (WORKER,)),
    *(
        (name, READ, (WEB,))
        for name in (
            "auth_group",
            "auth_permission",
            "auth_group_permissions",
            "auth_user_groups",
            "auth_user_user_permissions",
        )
    ),
    ("django_session", ALL, (WEB,)),
    ("django_admin_log", ADD, (WEB,)),
    ("django_content_type", READ, RUNTIME_ROLES),
    *(
        (f"tasks_app_{name}", READ, (READONLY,))
        for name in (
            "task",
            "thread",
            "step",
            "slice",
            "approval",
            "steeringcommand",
            "checkpoint",
            "event",
            "approvaldecision",
            "steprange",
            "attempt",
            "artifact",
            "outbox",
            "tenant",
            "membership",
            "agentidentity",
        )
    ),
]


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0002_guards"),
        ("ledger_app", "0003_roles"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [
        migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
        for table, verbs, roles in GRANTS
    ]
