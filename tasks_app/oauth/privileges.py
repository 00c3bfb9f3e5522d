"""What the web role may do with the tables of the authorization server's library.

The library has its own migrations, and may be switched on long after ours were applied; so this is
looked at after each `migrate`.
"""

from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models.signals import post_migrate

from ledger_app.sql import WEB, grant_sql

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
# Of the tables that nothing here fills, one is read when a token is deleted.
VERBS = {
    "oauth2_provider_application": ALL[:3],
    "oauth2_provider_grant": ALL,
    "oauth2_provider_accesstoken": ALL,
    "oauth2_provider_refreshtoken": ALL,
    "oauth2_provider_idtoken": ALL[:1],
}
_MISSING = """
SELECT bool_or(NOT has_table_privilege(rolname, 'oauth2_provider_accesstoken', 'DELETE'))
FROM pg_catalog.pg_roles WHERE rolname = %s
"""


def install() -> None:
    """Look whenever the library's tables may have been made."""
    post_migrate.connect(
        _grant, sender=apps.get_app_config("oauth2_provider"), dispatch_uid="oauth.privileges"
    )


def _grant(*, using: str, **_: Any) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(_MISSING, [WEB])
        [(is_missing,)] = cursor.fetchall()
        if is_missing:
            for table, verbs in VERBS.items():
                cursor.execute(grant_sql(table, verbs, (WEB,)))
