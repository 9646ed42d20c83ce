"""Transfer weights from a source into a model, accounting for every tensor."""

import re
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitlab.errors import CheckpointError
from vitlab.models import (
    Captioner,
    EncoderDecoder,
    ImageTextModel,
    MaskedAutoencoder,
    SingleStream,
    VisionTransformer,
    head_names,
)
from vitlab.models.initialization import initialize
from vitlab.vocabulary import check_vocabularies
from vitlab.weights.decoder_names import with_encoder
from vitlab.weights.facts import check_facts, unstated
from vitlab.weights.fitting import Fitted, fit, fit_captioner, fit_heads, fit_towers
from vitlab.weights.form import Source
from vitlab.weights.source import find
from vitlab.weights.transfer_table import Entry, Report, Status


def load(model: nn.Module, source: str, *, partial: bool, vocabularies: Mapping[str, Any] | None = None) -> Report:
    """Copy the weights that `source` names into the model, in place, resized where its sizes differ.

    Heads for other classes start anew. Any other tensor that is missing, left over or of another shape, and a number of
    heads, norm or activation that the source states otherwise, raises CheckpointError unless `partial`; the model is
    then as it was. Models other than VisionTransformer take tensors of their own names, a
    MaskedAutoencoder also those of the authors' code, a Captioner those of TrOCR, an ImageTextModel those of CLIP and
    SigLIP; what scores the tokens of a vocabulary is no head for other classes, and has to fit: those of a run to the
    `vocabularies` of the data.
    """
    vit = isinstance(model, VisionTransformer)
    found = find(source, rename=vit)
    if isinstance(model, EncoderDecoder | SingleStream) and not partial:
        check_vocabularies(vocabularies or {}, found.vocabularies, found.origin)
    if isinstance(model, VisionTransformer):
        if not partial:
            check_facts(model, found)
        report = transfer(model, found, fit(model, found), partial)
        report.assumed = unstated(model, found)
        return report
    if isinstance(model, MaskedAutoencoder):
        found = with_encoder(model, found)
    if isinstance(model, MaskedAutoencoder | Captioner | ImageTextModel | SingleStream) and not partial and found.facts:
        check_facts(model, found)
    if isinstance(model, Captioner):
        return transfer(model, found, fit_captioner(model, found), partial)
    if isinstance(model, ImageTextModel):
        return transfer(model, found, fit_towers(model, found), partial)
    fitted = Fitted(dict(found.tensors))
    heads = set() if isinstance(model, EncoderDecoder | SingleStream) else head_names(model)
    fit_heads(fitted, model, heads, heads & fitted.tensors.keys())
    return transfer(model, found, fitted, partial)


def transfer(model: nn.Module, source: Source, fitted: Fitted, partial: bool) -> Report:
    """Check every tensor, then copy."""
    own = model.state_dict()
    report = Report(source.origin, source.form)
    problems: list[str] = []
    taken: dict[str, Tensor] = {}
    for name, tensor in own.items():
        given = fitted.tensors.get(name)
        before = shape(source.tensors.get(name, given))
        if name in fitted.anew:
            report.entries.append(Entry(name, "initialised anew", before, shape(tensor), fitted.anew[name]))
        elif given is not None and given.shape == tensor.shape:
            taken[name] = given
            note = fitted.notes.get(name, "")
            status: Status = "copied" if given is source.tensors.get(name) else "resized"
            report.entries.append(Entry(name, status, before, shape(tensor), note))
        else:
            missing = given is None
            problems.append(
                f"{name} is not in it" if missing else f"{name} is {before} in it and {shape(tensor)} in the model"
            )
            note = "not in the source" if missing else "of another shape"
            report.entries.append(Entry(name, "initialised anew", before, shape(tensor), note))
    for name, tensor in fitted.tensors.items():
        if name in own:
            continue
        reason = fitted.spare.get(name) or ("of pre-training" if re.match(source.extras, name) else None)
        if reason is None:
            problems.append(f"the model has no {name}")
        report.entries.append(Entry(name, "left over", shape(tensor), "", reason or "the model has none"))
    problems += torn(own, taken)
    refuse(source, problems, taken, partial)
    with torch.no_grad():
        for name, tensor in taken.items():
            own[name].copy_(tensor)  # state_dict gives the model's own memory
    start_anew(model, set(fitted.anew))
    return report


def refuse(source: Source, problems: list[str], taken: dict[str, Tensor], partial: bool) -> None:
    """Raise CheckpointError for weights of another model."""
    if problems and not partial:
        others = f", and {len(problems) - 1} more tensors do not fit" if len(problems) > 1 else ""
        raise CheckpointError(
            f"{source.origin} is of another model: {problems[0]}{others}; choose its model, or take what fits with "
            "model.pretrained_partial=true"
        )
    if not taken:
        raise CheckpointError(f"{source.origin} has no tensor that fits the model: {problems[0]}")


def torn(own: dict[str, Tensor], taken: dict[str, Tensor]) -> list[str]:
    """List the tensors that the model shares between layers, and that the source has separately with different
    values."""
    first: dict[int, str] = {}
    apart = [(first.setdefault(own[name].data_ptr(), name), name) for name in taken]
    return [
        f"{a} and {b} are one tensor in the model, and two in it"
        for a, b in apart
        if a != b and not torch.equal(taken[a], taken[b])
    ]


def start_anew(model: nn.Module, names: set[str]) -> None:
    """Draw random heads, and reset norms to the identity."""
    for path in sorted({name.rpartition(".")[0] for name in names}):
        module: Any = model.get_submodule(path)
        if not isinstance(model, VisionTransformer):
            module.reset_parameters()
        elif any(module is head for head in model.heads()):
            model.initialize_head(cast(nn.Linear, module))
        else:
            initialize(module, model.scheme)


def shape(tensor: Tensor | None) -> str:
    return "" if tensor is None else "x".join(map(str, tensor.shape)) or "()"
