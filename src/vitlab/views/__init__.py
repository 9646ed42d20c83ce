"""Views of a Vision Transformer: where it looks, what it knows of places, what its filters seek."""

from vitlab.views.capture import capture_attention, capture_pooling, eval_mode
from vitlab.views.distance import mean_distance, patch_distances
from vitlab.views.filters import embedding_filters, principal_components
from vitlab.views.gallery import OF_IMAGES, VIEWS, gallery
from vitlab.views.likely import ClassProbability, describe_training, likely
from vitlab.views.modalities import modalities_figure
from vitlab.views.mosaic import channels_last, pick
from vitlab.views.position import cosine_similarity, embedding_similarity, relative_bias, rotary_similarity
from vitlab.views.reading import reading_figure, texts_figure
from vitlab.views.relevance import relevance, why_no_relevance
from vitlab.views.rollout import rollout
from vitlab.views.similarity import similarity_figure

__all__ = [
    "OF_IMAGES",
    "VIEWS",
    "ClassProbability",
    "capture_attention",
    "capture_pooling",
    "channels_last",
    "cosine_similarity",
    "describe_training",
    "embedding_filters",
    "embedding_similarity",
    "eval_mode",
    "gallery",
    "likely",
    "mean_distance",
    "modalities_figure",
    "patch_distances",
    "pick",
    "principal_components",
    "reading_figure",
    "relative_bias",
    "relevance",
    "rollout",
    "rotary_similarity",
    "similarity_figure",
    "texts_figure",
    "why_no_relevance",
]
