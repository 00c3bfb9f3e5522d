"""A person in a signed-in browser, and a program that they may let in."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from oauth2_provider.models import Application

from tasks_app.models import Tenant
from tests import factories
from tests.oauth.door import make_client


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant(name="Acme")


@pytest.fixture
def person(tenant: Tenant) -> User:
    return factories.make_member(tenant, "submitter")


@pytest.fixture
def window(person: User) -> Client:
    """A signed-in browser."""
    client = Client()
    client.force_login(person, "django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def program() -> Application:
    return make_client("Desk")
