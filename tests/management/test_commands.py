"""Rules for all our commands: they speak of what they do, and of nothing else first."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

OURS = {name: app for name, app in get_commands().items() if app in {"tasks_app", "ledger_app"}}
# Processes that run authors' code: what is wrong with it concerns them.
RUNNING = {"sweep", "work"}


@pytest.mark.parametrize("name", sorted(set(OURS) - RUNNING))
def test_commands_do_not_begin_with_warnings_of_others(name: str) -> None:
    """What authors declared is told by `check`."""
    assert load_command_class(OURS[name], name).requires_system_checks == []


@pytest.mark.django_db
def test_plan_check_of_an_unknown_tenant_is_wrong_usage() -> None:
    """No table begins, and the exit code is not that of a task that would be held."""
    output = StringIO()
    with pytest.raises(CommandError, match="There is no tenant nope") as refused:
        call_command("plan_check", "--tenant", "nope", stdout=output)
    assert refused.value.returncode == 2
    assert output.getvalue() == ""
