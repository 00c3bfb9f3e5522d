"""Numbers and names read out of a sentence: sums, periods, rates, whose law and courts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .model import Fact
from .rules import FactKind
from .sentences import normalise

_MAX_FACTS = 4

_WORD_NUMBERS = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(),  # noqa: SIM905
        start=1,
    )
} | {
    "fourteen": 14, "fifteen": 15, "eighteen": 18, "twenty": 20, "twenty-four": 24, "thirty": 30,
    "thirty-six": 36, "forty-five": 45, "sixty": 60, "ninety": 90,
}  # fmt: skip
_NUMBER_WORD = "|".join(sorted(_WORD_NUMBERS, key=len, reverse=True))

_PERIOD = re.compile(
    rf"\b(\d{{1,4}}|{_NUMBER_WORD})(?: ?\(\d{{1,4}}\))?[ -]"
    r"(?:calendar |business |working |consecutive )?(day|week|month|year)s?\b"
)
_PERIOD_ZH = re.compile(
    r"(\d{1,4}|[一二三四五六七八九十百两]{1,5}) ?(?:个)?(?:工作|自然)?(日|天|周|月|年)"
)
_UNITS_ZH = {"日": "day", "天": "day", "周": "week", "月": "month", "年": "year"}

_MONEY = re.compile(
    r"(?:(?:usd|eur|gbp|cny|rmb|hkd|aud|cad|chf|jpy|us)\s?[$€£¥]?|[$€£¥]|人民币)\s?"
    r"\d[\d,]{0,15}(?:\.\d{1,2})?\s?(?:million|billion|thousand|万|亿)?(?:美元|欧元|元)?"
    r"|\d[\d,]{0,15}(?:\.\d{1,2})?\s?(?:万|亿)?(?:美元|欧元|元)"
    r"|\d[\d,]{0,15}\s?(?:million |billion )?(?:dollars|euros?|pounds)\b"
)
_FEES = re.compile(
    r"\b(?:fees|amounts?|sums?|price|charges)\b.{0,50}?\b(?:paid|payable|received|due)\b"
    r"(?:.{0,80}?\b(?:\d{1,3}|twelve|six|three|twenty-four)\b.{0,8}?\bmonths?)?"
    r"|(?:合同|服务|订单|已付|已支付|实际支付).{0,12}?(?:总价款?|总额|总金额|费用|价款|款项)(?:的.{1,8}?%)?"
)
_PERCENT = re.compile(
    r"\d{1,3}(?:\.\d{1,4})?\s?(?:%|‰|per ?cent\b)(?: per (?:month|annum|year|day)| a month)?"
    r"|(?:百分之|千分之|万分之)[一二三四五六七八九十百零点\d.]{1,8}"
)

_NAME = r"[A-Z][\w'’.-]{1,30}(?:(?:,? and| of(?: the)?|,)? [A-Z][\w'’.-]{1,30}){0,5}"
_LAW = re.compile(
    rf"\b[Ll]aws? of (?:the )?({_NAME})"
    rf"|\b([A-Z][a-z]{{3,15}}(?: [A-Z][a-z]{{3,15}})?) [Ll]aws?\b"
    rf"|\b[Cc]ourts? (?:of|in|at|located in|sitting in) (?:the )?({_NAME})"
    rf"|\b(?:[Ss]eat|[Pp]lace|[Vv]enue)\b.{{0,40}}?\b(?:is|be|in) ({_NAME})"
    rf"|\barbitration (?:in|at) ({_NAME})"
)
_LAW_ZH = re.compile(
    r"(中华人民共和国|中国国际经济贸易仲裁委员会|中国|(?:香港|澳门)(?:特别行政区)?|台湾地区?"
    r"|[甲乙]方(?:住所地|所在地)|(?:合同签订地|原告|被告)(?:所在地|住所地)?"
    r"|[\u4e00-\u9fff]{2,6}?(?:国|州|省|市|区))"
    r"[\u4e00-\u9fff]{0,8}?(?:法律|法院|仲裁|法管辖|法解释)"
)
_LEADING_ZH = re.compile("^(?:[于受由向]|适用|依照|按照|根据){1,2}")
_NOT_A_PLACE = frozenset(
    [
        "Applicable",
        "Governing",
        "Copyright",
        "This",
        "The",
        "Local",
        "Such",
        "Any",
        "All",
        "Federal",
        "State",
        "Common",
        "Both",
        "Civil",
        "Public",
        "Patent",
        "Trademark",
        "Criminal",
        "Labor",
        "Labour",
        "Privacy",
        "Export",
        "Competent",
    ]
)


def extract_facts(kinds: tuple[FactKind, ...], quote: str) -> list[Fact]:
    """Return what the sentence says of the given kinds, in order, without doubles."""
    normal = normalise(quote)
    facts: dict[tuple[str, str], Fact] = {}
    for kind in kinds:
        for value in _READERS[kind](quote, normal):
            facts.setdefault((kind, value), Fact(kind=kind, value=value))
    return list(facts.values())[:_MAX_FACTS]


def _money(quote: str, normal: str) -> Iterator[str]:
    for pattern in (_MONEY, _FEES):
        for match in pattern.finditer(normal):
            yield quote[match.start() : match.end()].strip(" ,.")


def _notice(quote: str, normal: str) -> Iterator[str]:
    del quote
    for match in _PERIOD.finditer(normal):
        number = _WORD_NUMBERS.get(match.group(1)) or int(match.group(1))
        yield _period(number, match.group(2))
    for match in _PERIOD_ZH.finditer(normal):
        zh_number = _chinese_number(match.group(1))
        if zh_number and not (match.group(2) == "年" and zh_number > 100):
            yield _period(zh_number, _UNITS_ZH[match.group(2)])


def _period(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _chinese_number(text: str) -> int:
    if text.isdigit():
        return int(text)
    digits = {character: value for value, character in enumerate("零一二三四五六七八九")} | {
        "两": 2
    }
    total = current = 0
    for character in text:
        if character == "百":
            total, current = total + (current or 1) * 100, 0
        elif character == "十":
            total, current = total + (current or 1) * 10, 0
        else:
            current = digits.get(character, 0)
    return total + current


def _percent(quote: str, normal: str) -> Iterator[str]:
    for match in _PERCENT.finditer(normal):
        yield quote[match.start() : match.end()]


def _jurisdiction(quote: str, normal: str) -> Iterator[str]:
    del normal
    for match in _LAW.finditer(quote):
        name = next(group for group in match.groups() if group)
        if name.startswith("State of ") or name.split()[0].rstrip(",") not in _NOT_A_PLACE:
            yield name.rstrip(".,")
    for match in _LAW_ZH.finditer(quote):
        yield _LEADING_ZH.sub("", match.group(1))


_READERS: Mapping[FactKind, Callable[[str, str], Iterator[str]]] = {
    "money": _money,
    "notice": _notice,
    "percent": _percent,
    "jurisdiction": _jurisdiction,
}
