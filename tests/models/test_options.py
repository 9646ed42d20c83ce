"""Options are declared once, as fields, and models take them as flat keywords."""

import inspect
import typing
from dataclasses import fields

import pytest
from conftest import vit_options
from texts import OPTIONS

from vitlab.models import Decoder, DistilledVisionTransformer, TextEncoder, VisionTransformer
from vitlab.models.decoder import DecoderOptions
from vitlab.models.options import TransformerOptions, VisionTransformerOptions
from vitlab.models.text_module import TextOptions

MODELS = {
    VisionTransformer: VisionTransformerOptions,
    DistilledVisionTransformer: VisionTransformerOptions,
    TextEncoder: TextOptions,
    Decoder: DecoderOptions,
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_keywords_of_a_model_are_the_fields_of_its_options(model):
    parameters = inspect.signature(model).parameters
    declared = {field.name: field.type for field in fields(MODELS[model])}
    assert {name: parameter.annotation for name, parameter in parameters.items()} == declared
    assert typing.get_type_hints(model.__init__, include_extras=True) == declared
    assert {(parameter.kind, parameter.default) for parameter in parameters.values()} == {
        (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)
    }
    assert {field.name for field in fields(TransformerOptions)} < declared.keys()


def test_a_keyword_that_is_unknown_or_missing_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'embed_dmi'"):
        VisionTransformer(**vit_options(embed_dmi=3))
    with pytest.raises(
        TypeError, match="missing 3 required keyword-only arguments: 'causal', 'memory_dim', and 'tied'"
    ):
        Decoder(**OPTIONS)
