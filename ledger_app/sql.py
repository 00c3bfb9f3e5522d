"""SQL text for migrations: the database roles of the processes and what they may do.

`rt_web`, `rt_worker` and `rt_readonly` have no login of their own; a process connects with its own
login and takes one of them (`DATABASE_ROLE`). Granting is skipped where a role does not exist and
the migrating login may not create it, so a single-user set-up migrates too.
"""

import re
from collections.abc import Sequence

WEB = "rt_web"
WORKER = "rt_worker"
READONLY = "rt_readonly"
RUNTIME_ROLES = (WEB, WORKER)
ROLES = (WEB, WORKER, READONLY)

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_VERBS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})


def create_roles_sql(roles: Sequence[str] = ROLES) -> str:
    """Return a block that creates the missing roles, or leaves them out where it may not.

    Roles belong to the whole server: two databases that migrate at once may both try, and the
    one that comes second goes on. They are never dropped, since other databases may use them.
    """
    return f"""
DO $roles$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[{_literals(roles)}] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'role % is missing and may not be created here', wanted;
            END;
        END IF;
    END LOOP;
END
$roles$;
"""


def grant_sql(table: str, verbs: Sequence[str], roles: Sequence[str] = RUNTIME_ROLES) -> str:
    """Return a block that grants verbs on a table, and its sequences with INSERT, to roles.

    Args:
        table: the bare name of a table in the schema that is migrated.
        verbs: of SELECT, INSERT, UPDATE, DELETE. TRUNCATE is never granted: it passes row
            triggers by.
        roles: of ROLES; those that do not exist are left out.
    """
    return _each_role(roles, _grants(table, verbs, "GRANT", "TO"))


def revoke_sql(table: str, verbs: Sequence[str], roles: Sequence[str] = RUNTIME_ROLES) -> str:
    """Return the opposite of `grant_sql`, for the way back."""
    return _each_role(roles, _grants(table, verbs, "REVOKE", "FROM"))


def grant_execute_sql(signature: str, roles: Sequence[str] = RUNTIME_ROLES) -> str:
    """Return a block that takes a function from everybody and gives it to roles alone.

    Args:
        signature: `schema.name(argument types)`; a constant of the calling migration.
        roles: of ROLES; those that do not exist are left out.
    """
    return f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC;" + _each_role(
        roles, [f"format('GRANT EXECUTE ON FUNCTION {signature} TO %I', wanted)"]
    )


def revoke_execute_sql(signature: str, roles: Sequence[str] = RUNTIME_ROLES) -> str:
    """Return the opposite of `grant_execute_sql`; everybody may call the function again."""
    return (
        _each_role(roles, [f"format('REVOKE ALL ON FUNCTION {signature} FROM %I', wanted)"])
        + f"GRANT EXECUTE ON FUNCTION {signature} TO PUBLIC;"
    )


def _grants(table: str, verbs: Sequence[str], act: str, preposition: str) -> list[str]:
    _check_name(table)
    unknown = set(verbs) - _VERBS
    if unknown or not verbs:
        raise ValueError(f"verbs must be of {sorted(_VERBS)}, not {sorted(unknown)}")
    commands = [f"format('{act} {', '.join(verbs)} ON TABLE {table} {preposition} %I', wanted)"]
    if "INSERT" in verbs:
        # One statement for each sequence that a column of the table owns.
        commands.append(
            "coalesce((SELECT string_agg("
            f"format('{act} USAGE, SELECT ON SEQUENCE %s {preposition} %I',"
            " sequence.oid::regclass, wanted), '; ')"
            " FROM pg_catalog.pg_depend AS owned JOIN pg_catalog.pg_class AS sequence"
            " ON sequence.oid = owned.objid AND sequence.relkind = 'S'"
            f" WHERE owned.refobjid = '{table}'::regclass AND owned.deptype IN ('a', 'i')),"
            " 'SELECT')"
        )
    return commands


def _each_role(roles: Sequence[str], commands: Sequence[str]) -> str:
    unknown = set(roles) - set(ROLES)
    if unknown or not roles:
        raise ValueError(f"roles must be of {ROLES}, not {sorted(unknown)}")
    statements = "\n        ".join(f"EXECUTE {command};" for command in commands)
    return f"""
DO $grants$
DECLARE wanted text;
BEGIN
    FOR wanted IN SELECT rolname FROM pg_catalog.pg_roles WHERE rolname IN ({_literals(roles)}) LOOP
        {statements}
    END LOOP;
END
$grants$;
"""


def _literals(names: Sequence[str]) -> str:
    for name in names:
        _check_name(name)
    return ", ".join(f"'{name}'" for name in names)


def _check_name(name: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} is not a plain name of the database")
