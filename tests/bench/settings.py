"""The project's settings with the bench's workflows; nothing that is measured is changed."""

from runtime_project.settings import *  # noqa: F403
from runtime_project.settings import INSTALLED_APPS as _PROJECT_APPS

INSTALLED_APPS = [*_PROJECT_APPS, "tests.bench"]
