"""Fixtures for every test."""

from typing import Any

import pytest
from django.contrib.auth.management import create_permissions
from django.contrib.contenttypes.management import create_contenttypes
from django.contrib.contenttypes.models import ContentType
from django.db.models.signals import post_migrate
from django.utils import translation


def _forget_content_types(**_: Any) -> None:
    ContentType.objects.clear_cache()


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Make the emptying of the database between tests cheap.

    Django would fill in content types and permissions again after each test with real commits;
    content types come back when they are asked for, and no test reads permissions' rows.
    """
    post_migrate.disconnect(
        create_permissions, dispatch_uid="django.contrib.auth.management.create_permissions"
    )
    post_migrate.disconnect(create_contenttypes)
    post_migrate.connect(_forget_content_types, dispatch_uid="tests.forget_content_types")


@pytest.fixture(autouse=True)
def _own_language() -> None:
    # A request leaves its language behind in the thread.
    translation.deactivate()
