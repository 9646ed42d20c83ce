"""Texts out of a decoder's probabilities, one token after the other: the most probable token, or several texts at
once."""

from vitlab.decoding.beam_search import BeamSearch, search
from vitlab.decoding.greedy import Greedy
from vitlab.decoding.texts import Decoding, GeneratedTexts, TextState

__all__ = ["BeamSearch", "Decoding", "GeneratedTexts", "Greedy", "TextState", "search"]
