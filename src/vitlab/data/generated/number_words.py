"""Numbers in English words, to be written in digits: "two hundred forty-one" is 241."""

from vitlab.data.pools.pool import TextPool
from vitlab.data.targets import Texts
from vitlab.ranges import Count
from vitlab.vocabulary import CharacterVocabulary, WordVocabulary

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
ONES += " eighteen nineteen"
UNITS = tuple(ONES.split())
TENS = ("", "", *["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
MOST = 10**6


class NumberWords:
    """Each number from 0 up to `num_numbers` once, in one pool: its splits are carved, and so no number is in two of
    them. Raises ValueError for none, and for more than a million."""

    def __init__(self, *, num_numbers: Count):
        if not 1 <= num_numbers <= MOST:
            raise ValueError(f"num_numbers {num_numbers} is not from 1 to {MOST}")
        self.class_names: list[str] = []
        self.num_numbers = num_numbers

    def prepare(self) -> None:
        """Nothing to download."""

    def open(self) -> dict[str, TextPool]:
        words = WordVocabulary([*UNITS, *TENS[2:], "hundred", "thousand"])
        numbers = range(self.num_numbers)
        read = Texts([in_words(number) for number in numbers], words)
        return {"train": TextPool(read, Texts([str(number) for number in numbers], CharacterVocabulary("0123456789")))}


def in_words(number: int) -> str:
    """A number below a million, as one says it."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{TENS[tens]}-{UNITS[ones]}" if ones else TENS[tens]
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    many, rest = divmod(number, size)
    return f"{in_words(many)} {name} {in_words(rest)}" if rest else f"{in_words(many)} {name}"
