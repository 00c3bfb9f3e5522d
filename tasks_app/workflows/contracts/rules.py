"""The rule file, read strictly and compiled once.

A rule file with an unknown key, an unbounded repetition or a name that leads nowhere is refused as
a whole; a review never runs on half of its rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

RULE_FILE: Final = Path(__file__).with_name("rules.yaml")
MAX_REPEAT: Final = 300

FactKind = Literal["money", "notice", "percent", "jurisdiction"]


class RuleFileError(ValueError):
    """The rule file is not usable; the message names the place."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(_Strict):
    """One text in both languages."""

    en: str
    zh: str

    def in_language(self, language: str) -> str:
        """Return the text in `language`, English when it is neither."""
        return self.zh if language == "zh" else self.en


class _Patterns(_Strict):
    en: list[str]
    zh: list[str]


class _ModifierSource(_Strict):
    id: str
    title: Words
    add: int
    patterns: list[str]


class _RuleSource(_Strict):
    id: str
    category: str
    title: Words
    advice: Words
    weight: int
    protective: bool = False
    anchors: list[str]
    patterns: _Patterns
    exceptions: _Patterns
    modifiers: list[_ModifierSource]
    extract: list[FactKind]


class Expected(_Strict):
    """A protection that a kind of document should have, and the points its absence costs."""

    any_of: list[str]
    points: int
    en: str
    zh: str

    def in_language(self, language: str) -> str:
        """Return the sentence in `language`."""
        return self.zh if language == "zh" else self.en


class _KindSource(_Strict):
    least: int
    patterns: list[str]


class _FamilySource(_Strict):
    title: Words
    points: int


class _LicenceSource(_Strict):
    id: str
    family: str
    anchors: list[str]
    text: list[str]
    name: list[str]


class _Levels(_Strict):
    medium: int
    high: int
    critical: int


class _FileSource(_Strict):
    version: str
    levels: _Levels
    focus_factor: float
    categories: dict[str, Words]
    rules: list[_RuleSource]
    expected: dict[Literal["licence", "agreement"], list[Expected]]
    kinds: dict[Literal["agreement", "licence", "notice"], _KindSource]
    families: dict[str, _FamilySource]
    licences: list[_LicenceSource]


Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Modifier:
    """Something that makes a clause heavier or lighter, e.g. "mutual"."""

    id: str
    title: Words
    add: int
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of clause."""

    id: str
    category: str
    title: Words
    advice: Words
    weight: int
    protective: bool
    anchors: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    exceptions: tuple[Pattern, ...]
    modifiers: tuple[Modifier, ...]
    extract: tuple[FactKind, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """How to recognise a kind of document."""

    id: Literal["agreement", "licence", "notice"]
    least: int
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of licences; `rank` 0 is the most severe."""

    id: str
    title: Words
    points: int
    rank: int


@dataclass(frozen=True, slots=True)
class Licence:
    """A public licence: its own words, and the ways it is referred to."""

    id: str
    family: str
    anchors: tuple[str, ...]
    text: tuple[Pattern, ...]
    name: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules of one version.

    Attributes:
        version: The file's own version.
        sha256: Digest of the file's bytes.
        levels: Lowest score of medium, high and critical.
    """

    version: str
    sha256: str
    levels: tuple[int, int, int]
    focus_factor: float
    categories: Mapping[str, Words]
    rules: Mapping[str, Rule]
    expected: Mapping[str, tuple[Expected, ...]]
    kinds: tuple[Kind, ...]
    families: Mapping[str, Family]
    licences: tuple[Licence, ...]

    def is_focus(self, name: str) -> bool:
        """Return whether `name` is something a goal can focus on."""
        return name in self.categories or name in self.rules


@lru_cache(maxsize=4)
def load_rules(path: Path = RULE_FILE) -> RuleBook:
    """Return the compiled rules of one file; the same object for the life of the process.

    Raises:
        RuleFileError: when anything in the file is wrong.
    """
    return parse_rules(path.read_bytes())


def parse_rules(data: bytes) -> RuleBook:
    """Return the compiled rules of a file given as bytes.

    Raises:
        RuleFileError: when anything in the file is wrong.
    """
    try:
        document = yaml.safe_load(data)
        for rule in document["rules"]:
            rule["exceptions"] = rule.pop("except")
        source = _FileSource.model_validate(document)
    except (yaml.YAMLError, ValidationError, KeyError, TypeError, AttributeError) as error:
        raise RuleFileError(f"rule file: {error}") from error
    book = RuleBook(
        version=source.version,
        sha256=hashlib.sha256(data).hexdigest(),
        levels=(source.levels.medium, source.levels.high, source.levels.critical),
        focus_factor=source.focus_factor,
        categories=source.categories,
        rules={rule.id: _rule(rule) for rule in source.rules},
        expected={kind: tuple(items) for kind, items in source.expected.items()},
        kinds=tuple(
            Kind(name, kind.least, _compile(kind.patterns, name))
            for name, kind in source.kinds.items()
        ),
        families={
            name: Family(name, family.title, family.points, rank)
            for rank, (name, family) in enumerate(source.families.items())
        },
        licences=tuple(_licence(item) for item in source.licences),
    )
    _check_names(book, [rule.id for rule in source.rules])
    return book


def _rule(source: _RuleSource) -> Rule:
    where = f"rule {source.id}"
    if not source.anchors or any(anchor != anchor.lower() for anchor in source.anchors):
        raise RuleFileError(f"{where}: anchors must be given and in lower case")
    return Rule(
        id=source.id,
        category=source.category,
        title=source.title,
        advice=source.advice,
        weight=source.weight,
        protective=source.protective,
        anchors=tuple(source.anchors),
        patterns=_compile([*source.patterns.en, *source.patterns.zh], where),
        exceptions=_compile([*source.exceptions.en, *source.exceptions.zh], where),
        modifiers=tuple(
            Modifier(item.id, item.title, item.add, _compile(item.patterns, where))
            for item in source.modifiers
        ),
        extract=tuple(source.extract),
    )


def _licence(source: _LicenceSource) -> Licence:
    where = f"licence {source.id}"
    return Licence(
        id=source.id,
        family=source.family,
        anchors=tuple(source.anchors),
        text=_compile(source.text, where),
        name=_compile(source.name, where),
    )


_GAP = re.compile(r"<(\d{1,3})>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}")


def _compile(patterns: Sequence[str], where: str) -> tuple[Pattern, ...]:
    return tuple(compile_pattern(pattern, where) for pattern in patterns)


def compile_pattern(pattern: str, where: str = "pattern") -> Pattern:
    """Return the expression for one pattern of the rule file.

    Raises:
        RuleFileError: for an unbounded or too wide repetition, or a pattern that is not valid.
    """
    expanded = _GAP.sub(r".{0,\1}?", pattern)
    outside_classes = _CLASS.sub("_", re.sub(r"\\.", "_", expanded))
    if "*" in outside_classes or "+" in outside_classes:
        raise RuleFileError(f"{where}: unbounded repetition in {pattern!r}")
    for low, comma, high in _REPEAT.findall(outside_classes):
        bound = high if comma else low
        if not bound or int(bound) > MAX_REPEAT:
            raise RuleFileError(f"{where}: repetition wider than {MAX_REPEAT} in {pattern!r}")
    try:
        return re.compile(expanded)
    except re.error as error:
        raise RuleFileError(f"{where}: {error} in {pattern!r}") from error


def _check_names(book: RuleBook, rule_ids: Sequence[str]) -> None:
    if len(set(rule_ids)) != len(rule_ids):
        raise RuleFileError("two rules share an id")
    for name in set(rule_ids) & set(book.categories):
        if book.rules[name].category != name:
            raise RuleFileError(f"{name!r} is a rule and another rule's category")
    for rule in book.rules.values():
        if rule.category not in book.categories:
            raise RuleFileError(f"rule {rule.id}: unknown category {rule.category!r}")
    for licence in book.licences:
        if licence.family not in book.families:
            raise RuleFileError(f"licence {licence.id}: unknown family {licence.family!r}")
    for items in book.expected.values():
        for name in (name for item in items for name in item.any_of):
            if name not in book.rules:
                raise RuleFileError(f"expected: unknown rule {name!r}")
    if not 0 < book.levels[0] < book.levels[1] < book.levels[2] <= 100:
        raise RuleFileError("levels must grow from 1 to 100")
