"""Numbers in English words, to be written in digits: "two hundred forty-one" is 241."""

from typing import Annotated

from vitlab.data.pools.pool import Pool, Source, TextPool
from vitlab.data.targets import Texts
from vitlab.ranges import Range
from vitlab.vocabulary import CharacterVocabulary, WordVocabulary

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
ONES += " eighteen nineteen"
UNITS = tuple(ONES.split())
TENS = ("", "", *["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])


class NumberWords(Source):
    """Each number from 0 up to `num_numbers` once, in one pool: its splits are carved, so that no number is in two of
    them."""

    def __init__(self, *, num_numbers: Annotated[int, Range(least=1, most=10**6)]):
        self.num_numbers = num_numbers

    def open(self) -> dict[str, Pool]:
        words = WordVocabulary([*UNITS, *TENS[2:], "hundred", "thousand"])
        numbers = range(self.num_numbers)
        read = Texts([spell_number(number) for number in numbers], words)
        return {"train": TextPool(read, Texts([str(number) for number in numbers], CharacterVocabulary("0123456789")))}


def spell_number(number: int) -> str:
    """Return a number below a million in words."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{TENS[tens]}-{UNITS[ones]}" if ones else TENS[tens]
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    many, rest = divmod(number, size)
    return f"{spell_number(many)} {name} {spell_number(rest)}" if rest else f"{spell_number(many)} {name}"
