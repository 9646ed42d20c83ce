"""Architectures, one file each."""

from vitlab.models.asked_captioner import AskedCaptioner
from vitlab.models.attention_weights import record_attention
from vitlab.models.captioner import Captioner
from vitlab.models.decoder import AttentionMaps, Decoder
from vitlab.models.deit import DistilledVisionTransformer
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.image_text_model import ImageTextModel
from vitlab.models.masked_autoencoder import MaskedAutoencoder
from vitlab.models.parameter_kinds import ParameterKinds, parameter_kinds
from vitlab.models.representation import find_encoder, find_heads, head_names, represent
from vitlab.models.self_distilled import SelfDistilled
from vitlab.models.single_stream import SingleStream, StreamAttentionMaps
from vitlab.models.small_resnet import small_resnet
from vitlab.models.stages import stages
from vitlab.models.timm_model import timm_model
from vitlab.models.torchvision_model import torchvision_model
from vitlab.models.transformer import TextEncoder, Transformer
from vitlab.models.vit import VisionTransformer

__all__ = [
    "AskedCaptioner",
    "AttentionMaps",
    "Captioner",
    "Decoder",
    "DistilledVisionTransformer",
    "EncoderDecoder",
    "ImageTextModel",
    "MaskedAutoencoder",
    "ParameterKinds",
    "SelfDistilled",
    "SingleStream",
    "StreamAttentionMaps",
    "TextEncoder",
    "Transformer",
    "VisionTransformer",
    "find_encoder",
    "find_heads",
    "head_names",
    "parameter_kinds",
    "record_attention",
    "represent",
    "small_resnet",
    "stages",
    "timm_model",
    "torchvision_model",
]
