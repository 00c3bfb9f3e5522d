"""Codes and refresh tokens that are sent twice: at once, and when they have been used (RFC 6749)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from tasks_app.admission import tokens
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.oauth.validator import Validator
from tests.oauth.door import make_client
from tests.oauth.test_page import exchange, let_in, renew
from tests.races.actors import Actor, rows_held

pytestmark = pytest.mark.django_db

Overtake = Callable[[str, Callable[[], Any]], list[Any]]


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Overtake:
    """Let a whole other request happen just before a step of the next one."""

    def arrange(step: str, other: Callable[[], Any]) -> list[Any]:
        answers: list[Any] = []
        real = getattr(Validator, step)

        def overtaken(self: Validator, *args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(Validator, step, real)
            answers.append(other())
            return real(self, *args, **kwargs)

        monkeypatch.setattr(Validator, step, overtaken)
        return answers

    return arrange


@pytest.mark.parametrize("step", ["validate_grant_type", "get_original_scopes"])
def test_refresh_token_sent_twice_at_once_works_once(
    window: Client, program: Application, overtake: Overtake, step: str
) -> None:
    """Whoever was overtaken gets nothing, and takes nothing from the other."""
    given = exchange(program, let_in(window, program)["code"]).json()
    first = overtake(step, lambda: renew(program, given["refresh_token"]))
    late = renew(program, given["refresh_token"])
    assert (late.status_code, late.json()["error"]) == (400, "invalid_grant")
    [renewed] = [one.json() for one in first]
    tokens.from_token(renewed["access_token"])
    assert renew(program, renewed["refresh_token"]).status_code == 200


def test_replayed_refresh_token_still_ends_its_family(window: Client, program: Application) -> None:
    given = exchange(program, let_in(window, program)["code"]).json()
    renewed = renew(program, given["refresh_token"]).json()
    assert renew(program, given["refresh_token"]).json()["error"] == "invalid_grant"
    assert renew(program, renewed["refresh_token"]).json()["error"] == "invalid_grant"
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(renewed["access_token"])


def test_token_that_ends_while_it_is_issued_is_no_failure(
    window: Client, program: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who ends the program's access at that moment."""
    code = let_in(window, program)["code"]
    real = Validator.save_bearer_token

    def ended(self: Validator, *args: Any, **kwargs: Any) -> Any:
        real(self, *args, **kwargs)
        window.post("/o/programs/", {"client_id": program.client_id})

    monkeypatch.setattr(Validator, "save_bearer_token", ended)
    told = exchange(program, code)
    assert (told.status_code, told.json()["error"]) == (400, "invalid_grant")


def test_replayed_code_ends_what_it_gave(window: Client, program: Application) -> None:
    """Also what has been renewed since; what another code gave stays."""
    code = let_in(window, program)["code"]
    given = exchange(program, code).json()
    renewed = renew(program, given["refresh_token"]).json()
    other = exchange(program, let_in(window, program)["code"]).json()
    assert exchange(make_client("Other"), code).json()["error"] == "invalid_grant"
    tokens.from_token(renewed["access_token"])
    assert exchange(program, code).json()["error"] == "invalid_grant"
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(renewed["access_token"])
    assert renew(program, renewed["refresh_token"]).json()["error"] == "invalid_grant"
    tokens.from_token(other["access_token"])


def test_code_sent_twice_at_once_is_a_replay(
    window: Client, program: Application, overtake: Overtake
) -> None:
    code = let_in(window, program)["code"]
    first = overtake("save_bearer_token", lambda: exchange(program, code))
    assert exchange(program, code).json()["error"] == "invalid_grant"
    [given] = [one.json() for one in first]
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(given["access_token"])
    assert not AccessToken.objects.exists()
    assert not Grant.objects.exists()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_many_renewals_at_once(window: Client, program: Application) -> None:
    """In threads of their own: one gets tokens, which work; nobody fails."""
    given = exchange(program, let_in(window, program)["code"]).json()
    with rows_held(RefreshToken.objects.all(), until_waiting=4):
        actors = [Actor(lambda: renew(program, given["refresh_token"])) for _ in range(4)]
    sent = [actor.result() for actor in actors]
    assert sorted(one.status_code for one in sent) == [200, 400, 400, 400]
    [won] = [one.json() for one in sent if one.status_code == 200]
    assert {one.json()["error"] for one in sent if one.status_code == 400} == {"invalid_grant"}
    tokens.from_token(won["access_token"])
    assert renew(program, won["refresh_token"]).status_code == 200
