"""Rules: the Chinese catalogue is complete, compiled, and says what the code says."""

import gettext
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib import admin
from django.db.models import Field

from tasks_app.admin.base import ReadOnlyAdmin
from tasks_app.admin.labels import LABELS
from tests.architecture.sources import ROOT
from tests.support.catalogue import Entry, read_po

PO = ROOT / "tasks_app/locale/zh_Hans/LC_MESSAGES/django.po"
UNTRANSLATED = {"MCP", "REST", "SHA-256", "Webhook"}
_PLACE = re.compile(r"%\(\w+\)\d*[sd]|</?code>|\{\w+\}")


def test_compiled_catalogue_equals_its_source() -> None:
    """The committed .mo holds each entry of the .po and nothing else."""
    with PO.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    held: dict[object, str] = dict(compiled._catalog)  # type: ignore[attr-defined]
    held.pop("")
    written = {}
    for entry in read_po(PO):
        plural = bool(entry.plural)
        for number, text in enumerate(entry.translations):
            written[(entry.key, number) if plural else entry.key] = text
    assert held == written


def test_every_entry_is_translated() -> None:
    """No entry is empty, marked as a guess, or given twice."""
    entries = read_po(PO)
    assert [e.text for e in entries if e.fuzzy or not all(e.translations)] == []
    assert len({entry.key for entry in entries}) == len(entries) > 500


def test_translations_keep_what_is_filled_in() -> None:
    """Each translation holds the same names, commands and marks as its English text."""
    assert [e.text for e in read_po(PO) if _places(e.text) != _places(e.translations[0])] == []


def _places(text: str) -> list[str]:
    return sorted(_PLACE.findall(text))


def test_status_words_are_the_agreed_ones() -> None:
    """People meet the same words for the states of a task everywhere."""
    words = {entry.key: entry.translations[0] for entry in read_po(PO)}
    agreed = {
        "Queued": "排队中", "Working": "运行中", "Input required": "等待处理",
        "Pausing": "正在暂停", "Paused": "已暂停", "Recovering": "恢复中",
        "Cancelling": "正在取消", "Completed": "已完成", "Failed": "失败",
        "Timed out": "已超时", "Cancelled": "已取消", "Needs repair": "死信待修复",
    }  # fmt: skip
    assert {name: words[name] for name in agreed} == agreed


def test_punctuation_is_chinese() -> None:
    """A sentence in Chinese ends in Chinese, and commas between its characters are wide."""
    han = r"[\u4e00-\u9fff]"
    narrow = re.compile(rf"{han}[,;:.!?()]|[,;:!?]\s*{han}")
    assert [e.text for e in read_po(PO) if narrow.search(e.translations[0])] == []


def test_columns_of_the_admin_have_words() -> None:
    """Each field of a model that an admin page shows under its own name is in `LABELS`."""
    missing = set()
    for model, pages in admin.site._registry.items():
        if not isinstance(pages, ReadOnlyAdmin):
            continue
        fields = {f.name for f in model._meta.get_fields() if isinstance(f, Field)}
        shown = {*pages.list_display, *(pages.fields or ())}
        missing |= {str(name) for name in shown if name in fields} - LABELS.keys()
    assert missing == set()


@pytest.mark.skipif(
    shutil.which("xgettext") is None, reason="needs xgettext: apt-get install gettext"
)
def test_every_marked_text_is_in_the_catalogue(tmp_path: Path) -> None:
    """Collecting the messages again finds no new one and misses none."""
    for name in ("runtime_project", "tasks_app", "ledger_app", "templates"):
        ignored = shutil.ignore_patterns("__pycache__", "migrations", "static")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    found = tmp_path / PO.relative_to(ROOT)
    script = (
        "import django; from django.conf import settings; "
        "from django.core.management import call_command; "
        f"settings.configure(USE_I18N=True, LOCALE_PATHS=[{str(found.parents[2])!r}]); "
        "django.setup(); "
        "call_command('makemessages', locale=['zh_Hans'], no_obsolete=True, verbosity=0)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    assert _texts(found) == _texts(PO)


def _texts(path: Path) -> set[tuple[str, str]]:
    def pair(entry: Entry) -> tuple[str, str]:
        return entry.key, entry.plural

    return {pair(entry) for entry in read_po(path)}
