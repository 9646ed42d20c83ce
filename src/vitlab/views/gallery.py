"""Draw all views of a model, by name.

B images, C channels, H W image height and width
"""

from collections.abc import Collection, Iterator
from textwrap import wrap

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.models import VisionTransformer
from vitlab.views.attention_figures import (
    attention_figure,
    distance_figure,
    relevance_figure,
    rollout_figure,
)
from vitlab.views.likely import ClassProbability
from vitlab.views.look import look
from vitlab.views.relevance import relevance, why_no_relevance
from vitlab.views.weight_figures import filters_figure, position_figure

OF_IMAGES = ("attention", "rollout", "relevance", "distance")  # views that want images
WIDEST = 24  # letters of a line beside pictures
VIEWS = (*OF_IMAGES, "position", "filters")


def gallery(
    model: VisionTransformer,
    inputs: Tensor,
    pictures: Tensor,
    titles: list[str],
    views: Collection[str] = VIEWS,
    likeliest: list[list[ClassProbability]] | None = None,
) -> Iterator[tuple[str, Figure | None]]:
    """Yield names and figures, one after the other; None where the model has nothing of the kind.

    `inputs` (B, C, H, W) are what the model takes, on its device, and `pictures` (B, C, H, W) in [0, 1] what a person
    sees, with a title each, whose first line is its name; both may be empty for views that want no images. `likeliest`
    are the classes of each image, best first, of a model that predicts classes.
    """
    grid, patch_size = model.patch_embed.grid, model.patch_embed.patch_size
    pictures = pictures.float().cpu()
    names = ["\n".join(wrap(title.split("\n")[0], WIDEST)) for title in titles]
    if set(views) & set(OF_IMAGES):
        found = [look(model, image[None]) for image in inputs]
        looks = [seen for seen in found if seen is not None]
        if len(looks) < len(found):
            yield from ((view, None) for view in views if view in OF_IMAGES)
            views = set(views) - set(OF_IMAGES)
    if "attention" in views:
        for number, (seen, picture, title) in enumerate(zip(looks, pictures, titles, strict=True), start=1):
            whose = model.attn_pool.whose_attention
            figure = attention_figure(picture, seen.maps, seen.pooling, grid, whose=whose, title=title)
            yield f"attention_{number}", figure
    if "rollout" in views:
        rolled = torch.stack([seen.rollout for seen in looks])
        whose = model.attn_pool.reads
        yield "attention_rollout", rollout_figure(list(pictures), rolled, grid, whose=whose, titles=names)
    if "relevance" in views and likeliest is not None and why_no_relevance(model) is None:
        maps = [
            torch.stack([relevance(model, image[None], one.number) for one in classes])
            for image, classes in zip(inputs, likeliest, strict=True)
        ]
        rows = ["\n".join([name, *map(str, classes)]) for name, classes in zip(names, likeliest, strict=True)]
        yield "relevance", relevance_figure(list(pictures), torch.stack(maps), grid, titles=rows)
    elif "relevance" in views:
        yield "relevance", None
    if "distance" in views:
        distances = torch.stack([seen.distances for seen in looks])
        yield "attention_distance", distance_figure(distances, grid, patch_size)
    if "position" in views:
        yield "position_similarity", position_figure(model)
    if "filters" in views:
        yield "embedding_filters", filters_figure(model)
