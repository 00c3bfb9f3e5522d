"""Rules: what browsers load is vendored, small, and needs nothing that the CSP forbids."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
from django.template.loader import get_template
from django.test import Client

from tasks_app.templatetags import dashboard, facts, words

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "tasks_app/static/rt"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


def test_vendored_files_are_the_published_ones() -> None:
    """Each file has its hash, licence and origin in vendor.json, and there is no other file."""
    vendor = STATIC / "vendor"
    listed = json.loads((vendor / "vendor.json").read_text())
    names = {"vendor.json"}
    for entry in listed:
        data = (vendor / entry["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        assert (vendor / entry["licence_file"]).read_text().strip()
        assert {"name", "version", "npm", "licence"} <= entry.keys()
        names |= {entry["file"], entry["licence_file"]}
    assert {path.name for path in vendor.iterdir()} == names


def test_own_files_are_small() -> None:
    """Both scripts together at most 6 kB, the styles of a page at most 12 kB, compressed (U1)."""

    def weight(*names: str) -> int:
        return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in names)

    assert weight("app.js", "live.js") <= 6_000
    assert weight("tokens.css", "app.css") <= 12_000


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_template_holds_nothing_that_the_csp_forbids(path: Path) -> None:
    """No inline script, style or handler, no expression of htmx, and no trust in data (U4)."""
    text = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|hx-on|js:|javascript:|data:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"hx-trigger=\"[^\"]*\[", text)
    assert "|safe" not in text
    assert "autoescape off" not in text
    get_template(str(path.relative_to(ROOT / "templates")))


def test_every_icon_that_is_used_exists() -> None:
    """The sprite has a symbol for each name in templates and words."""
    symbols = set(re.findall(r'<symbol id="([a-z]+)"', (STATIC / "icons.svg").read_text()))
    used = {look.icon for looks in words.LOOKS.values() for look in looks.values()}
    for path in TEMPLATES:
        used |= set(re.findall(r"{% icon \"([a-z]+)\"", path.read_text()))
    assert used <= symbols


def test_scripts_hold_no_words() -> None:
    """Texts come from data attributes of the page, so that they can be translated (U15)."""
    for name in ("app.js", "live.js"):
        code = re.sub(r"//[^\n]*", "", (STATIC / name).read_text())
        assert not re.search(r"textContent = ['\"`][A-Za-z]", code)


@pytest.mark.django_db
def test_pages_carry_the_exact_policy() -> None:
    """The policy of S123 is on a page, without any exception."""
    policy = Client().get("/login/")["Content-Security-Policy"]
    assert {part.strip() for part in policy.split(";")} == {
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'",
        "font-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'",
        "base-uri 'none'", "object-src 'none'",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>", "&lt;b&gt;"),
        ("a\u202eb", 'a<span class="odd" title="invisible">U+202E</span>b'),
        ("zero\u200bwidth", 'zero<span class="odd" title="invisible">U+200B</span>width'),
        ("line\nbreak", "line\nbreak"),
        ("合同", "合同"),
    ],
)
def test_visible_shows_what_hides(text: str, shown: str) -> None:
    """Markup is escaped; characters that hide or reorder are named; others are untouched (U29)."""
    assert dashboard.visible(text) == shown


def test_look_alike_words_are_noticed() -> None:
    """A Latin word with one Cyrillic letter is odd; a Russian or Chinese word is not (S65)."""
    assert dashboard.has_odd("p\u0430ypal")
    assert not dashboard.has_odd("\u0434\u043e\u0433\u043e\u0432\u043e\u0440 合同 contract")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.84, "0.8 s"), (12, "12 s"), (75, "1 m 15 s"), (3_840, "1 h 04 m"), (None, "–")],
)
def test_durations_read_naturally(seconds: float | None, text: str) -> None:
    """Units as people say them (U28)."""
    assert dashboard.duration(seconds) == text


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read(theme: int) -> None:
    """Text on the page, on a surface and on its tint has 4.5:1, borders of controls 3:1 (WCAG)."""
    tokens = {
        name: (light, dark)[theme]
        for name, light, dark in re.findall(
            r"--([a-z-]+): light-dark\((#\w{6}), (#\w{6})\)", (STATIC / "tokens.css").read_text()
        )
    }
    tints = [name for name in tokens if f"{name}-bg" in tokens]
    assert len(tints) == 7
    pairs = [(name, f"{name}-bg") for name in tints]
    pairs += [
        (text, ground) for text in ("ink", "mut", "link", "danger") for ground in ("bg", "surf")
    ]
    pairs += [("btn-ink", "btn"), *((name, "bg") for name in tints)]
    for text, ground in pairs:
        assert _contrast(tokens[text], tokens[ground]) >= 4.5, (text, ground)
    assert _contrast(tokens["ctl"], tokens["bg"]) >= 3


def test_facts_are_readable_and_escaped() -> None:
    """Alike things become a table, digests and sizes are short, hostile keys stay text."""
    value = {
        "files": [{"name": "<b>a</b>", "sha256": "ab" * 32, "size_bytes": 2_500}],
        "levels": {"high": 2},
        "none": None,
        "<i>key": 1_234,
        "deep": {"a": {"b": [1]}},
    }
    text = facts.facts(value)
    assert "<b>" not in text
    assert "<i>" not in text
    assert "2.5 kB" in text
    assert f'title="{"ab" * 32}"' in text
    assert "1,234" in text
    assert text.index("1,234") < text.index("<table>")
    assert "High 2" in text
    assert "&quot;b&quot;" in text


def test_failure_page_needs_neither_request_nor_database() -> None:
    """Django renders 500.html with nothing at hand."""
    assert "Something failed here" in get_template("500.html").render()
