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
)
from vitlab.models.initialization import initialize
from vitlab.vocabulary import check_vocabularies
from vitlab.weights.decoder_names import prefix_encoder
from vitlab.weights.facts import check_facts, find_differing_facts, list_unstated
from vitlab.weights.fitting import FittedTensors, fit, fit_captioner, fit_towers
from vitlab.weights.form import LoadedWeights
from vitlab.weights.heads import compare_options, find_head_names, remedy, settle_head
from vitlab.weights.renaming import Tensors
from vitlab.weights.source import find
from vitlab.weights.transfer_table import Entry, Report, Status


def load(
    model: nn.Module,
    source: str,
    *,
    partial: bool = False,
    head: bool = True,
    vocabularies: Mapping[str, Any] | None = None,
) -> Report:
    """Copy the weights that `source` names into the model, in place, resized where its sizes differ.

    Heads for other classes start anew, and with `head` false any. A tensor that is missing, left over or of another
    shape, a number of heads, norm or activation that the source states otherwise, and a head that reads something else,
    raise CheckpointError unless `partial`; the model is then as it was. Models other than VisionTransformer take
    tensors of their own names, a MaskedAutoencoder also those of the authors' code, a Captioner those of TrOCR, an
    ImageTextModel those of CLIP and SigLIP; what scores the tokens of a vocabulary is no head for other classes, and
    has to fit: those of a run to the `vocabularies` of the data.
    """
    found = find(source, rename=isinstance(model, VisionTransformer))
    if isinstance(model, EncoderDecoder | SingleStream) and not partial:
        check_vocabularies(vocabularies or {}, found.vocabularies, found.origin)
    if isinstance(model, MaskedAutoencoder):
        found = prefix_encoder(model, found)
    differing = find_differing_facts(model, found)
    if not partial:
        check_facts(found, differing)
    fitted = fit_to(model, found)
    check_tensors(model, found, fitted, [f"{key} is another" for key in differing], partial=partial, head=head)
    report = transfer(model, found, fitted)
    if isinstance(model, VisionTransformer):
        report.assumed = list_unstated(model, found, head="head.weight" not in fitted.anew)
    return report


def fit_to(model: nn.Module, source: LoadedWeights) -> FittedTensors:
    """Fit a source to a model of whatever kind."""
    if isinstance(model, VisionTransformer):
        return fit(model, source)
    if isinstance(model, Captioner):
        return fit_captioner(model, source)
    return fit_towers(model, source) if isinstance(model, ImageTextModel) else FittedTensors(dict(source.tensors))


def check_tensors(
    model: nn.Module, source: LoadedWeights, fitted: FittedTensors, differing: list[str], *, partial: bool, head: bool
) -> None:
    """Raise CheckpointError for weights of another model; let the head start anew where it has to."""
    own = model.state_dict()
    heads = find_head_names(model, own | fitted.tensors)
    problems = misfits(own, source, fitted, heads)
    others = f", and {len(problems) - 1} more tensors do not fit" if len(problems) > 1 else ""
    if problems and not partial:
        options = compare_options(model, source) if isinstance(model, VisionTransformer) else {}
        raise CheckpointError(
            f"{source.origin} is of another model: {problems[0]}{others}; {remedy(options) or 'choose its model'}, or "
            "load only what fits with model.pretrained_partial=true"
        )
    if problems and not any(is_taken(name, own, fitted) for name in own):
        raise CheckpointError(f"{source.origin} has no tensor that fits the model: {problems[0]}")
    before = [*differing, *(f"{problem}{others}" for problem in problems[:1])]
    settle_head(model, source, fitted, before, partial=partial, wanted=head)


def misfits(own: Tensors, source: LoadedWeights, fitted: FittedTensors, heads: set[str]) -> list[str]:
    """List what keeps the tensors before the head from being the source's, all of them."""
    problems = []
    for name in [name for name in own if name not in fitted.anew and name not in heads]:
        if name not in fitted.tensors:
            problems.append(f"{name} is not in it")
        elif fitted.tensors[name].shape != own[name].shape:
            before = shape(source.tensors.get(name, fitted.tensors[name]))
            problems.append(f"{name} is {before} in it and {shape(own[name])} in the model")
    left = [name for name in fitted.tensors if name not in own and name not in heads]
    problems += [f"the model has no {name}" for name in left if reason_to_leave(name, source, fitted) is None]
    return problems + find_untied(own, {name: fitted.tensors[name] for name in own if is_taken(name, own, fitted)})


def is_taken(name: str, own: Tensors, fitted: FittedTensors) -> bool:
    given = fitted.tensors.get(name)
    return name not in fitted.anew and given is not None and given.shape == own[name].shape


def reason_to_leave(name: str, source: LoadedWeights, fitted: FittedTensors) -> str | None:
    return fitted.spare.get(name) or ("of pre-training" if re.match(source.extras, name) else None)


def transfer(model: nn.Module, source: LoadedWeights, fitted: FittedTensors) -> Report:
    """Copy what is taken, let the rest start anew, and account for every tensor."""
    own = model.state_dict()
    report = Report(source.origin, source.form)
    for name, tensor in own.items():
        given = fitted.tensors.get(name)
        before = shape(source.tensors.get(name, given))
        status: Status = "initialised anew"
        if is_taken(name, own, fitted):
            status, note = "copied" if given is source.tensors.get(name) else "resized", fitted.notes.get(name, "")
        else:
            note = fitted.anew.get(name, "not in the source" if given is None else "of another shape")
        report.entries.append(Entry(name, status, before, shape(tensor), note))
    for name in [name for name in fitted.tensors if name not in own]:
        reason = reason_to_leave(name, source, fitted) or "the model has none"
        report.entries.append(Entry(name, "left over", shape(fitted.tensors[name]), "", reason))
    with torch.no_grad():
        for name in [name for name in own if is_taken(name, own, fitted)]:
            own[name].copy_(fitted.tensors[name])  # state_dict gives the model's own memory
    start_anew(model, set(fitted.anew))
    return report


def find_untied(own: dict[str, Tensor], taken: dict[str, Tensor]) -> list[str]:
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
