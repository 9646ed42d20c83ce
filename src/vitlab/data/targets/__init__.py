"""What images are labelled with: a file for each kind, which says how targets collate, divide a pool and mix."""

from vitlab.data.targets.answers import AnswerBatch, Answers
from vitlab.data.targets.captions import CaptionBatch, Captions
from vitlab.data.targets.classes import Classes, OneClass, SeveralClasses, find_stray, make_classes, multi_hot
from vitlab.data.targets.nothing import NoTargets
from vitlab.data.targets.outputs import Outputs
from vitlab.data.targets.several_texts import ImageTextBatch, SeveralTexts
from vitlab.data.targets.targets import Targets
from vitlab.data.targets.texts import TextBatch, Texts

__all__ = [
    "AnswerBatch",
    "Answers",
    "CaptionBatch",
    "Captions",
    "Classes",
    "ImageTextBatch",
    "NoTargets",
    "OneClass",
    "Outputs",
    "SeveralClasses",
    "SeveralTexts",
    "Targets",
    "TextBatch",
    "Texts",
    "find_stray",
    "make_classes",
    "multi_hot",
]
