import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from vitlab.config.home import CONF
from vitlab.run.building.model import build_model

PRESETS = sorted(path.stem for path in (CONF / "model").glob("[!_]*.yaml"))
# preset: pixels, channels, classes, and the number of parameters, which timm's models of these sizes have too
OF_TEXTS = {"clip_b16": (49_408, 77), "siglip_b16": (32_000, 64)}  # words, and tokens of a text
GOLDEN = {
    "vit_mu4": (32, 1, 10, 28_458),
    "vit_xs4": (32, 1, 10, 1_797_706),
    "vit_xs8": (32, 1, 10, 1_797_706),
    "vit_ti4": (32, 3, 10, 5_362_762),
    "vit_s4": (32, 3, 10, 21_342_346),
    "vit_ti16": (224, 3, 1000, 5_717_416),
    "vit_s16": (224, 3, 1000, 22_050_664),
    "vit_s32": (224, 3, 1000, 22_878_952),
    "vit_b16": (224, 3, 1000, 86_567_656),
    "vit_b32": (224, 3, 1000, 88_224_232),
    "vit_l16": (224, 3, 1000, 304_326_632),
    "vit_l32": (224, 3, 1000, 306_535_400),
    "vit_h14": (224, 3, 1000, 632_045_800),
    "dinov3_b16": (224, 3, 1000, 86_437_864),  # with a bias of keys, which theirs have not
    "dinov3_l16": (224, 3, 1000, 304_178_152),
    "dinov3_s16": (224, 3, 1000, 21_985_768),
    "vit5_b16": (224, 3, 1000, 86_543_080),
    "vit5_l16": (224, 3, 1000, 304_258_024),
    "vit5_s16": (224, 3, 1000, 22_039_144),
    "deit3_b16": (224, 3, 1000, 86_585_320),
    "deit3_h14": (224, 3, 1000, 632_126_440),
    "deit3_l16": (224, 3, 1000, 304_374_760),
    "deit3_s16": (224, 3, 1000, 22_059_496),
    "deit_b16": (224, 3, 1000, 86_567_656),
    "deit_b16_distilled": (224, 3, 1000, 87_338_192),
    "deit_s16": (224, 3, 1000, 22_050_664),
    "deit_s16_distilled": (224, 3, 1000, 22_436_432),
    "deit_ti16": (224, 3, 1000, 5_717_416),
    "deit_ti16_distilled": (224, 3, 1000, 5_910_800),
    "dino_b16": (224, 3, 1000, 108_871_680),
    "dino_s16": (224, 3, 1000, 43_952_256),
    "dino_xs4": (32, 1, 10, 2_058_752),
    "mae_b16": (224, 3, 1000, 111_655_680),
    "mae_l16": (224, 3, 1000, 329_239_296),
    "mae_xs4": (32, 1, 10, 2_027_344),
    "clip_b16": (224, 3, None, 149_621_505),  # with a bias of patches, which theirs has not
    "clip_xs8": (32, 1, None, 1_910_465),  # of 13 words, and texts of as many
    "siglip_b16": (224, 3, None, 203_155_970),
    "asked_reader_xs8": (32, 1, None, 1_335_424),  # of 13 tokens
    "single_stream_xs8": (32, 1, None, 1_202_816),  # of 13 tokens, and answers of as many
    "reader_xs8": (16, 1, None, 1_334_400),  # of 13 tokens, and texts of as many
    "transformer_mu": (None, 1, None, 237_568),  # reads 33 words, 8 in a text; writes 13 tokens, 6 in a text
    "resnet18": (224, 3, 1000, 11_689_512),
    "resnet20": (32, 3, 10, 269_722),
    "resnet50": (224, 3, 1000, 25_557_032),
    "timm": (224, 3, 1000, 11_689_512),
    "vit_b14_registers": (224, 3, 1000, 86_496_232),
    "vit_b16_original": (224, 3, 1000, 87_158_248),
    "vit_giant14": (224, 3, 1000, 1_012_611_432),
    "vit_gigantic14": (224, 3, 1000, 1_844_440_680),
    "vit_h14_original": (224, 3, 1000, 633_685_480),
    "vit_l16_original": (224, 3, 1000, 305_376_232),
    "vit_s14_registers": (224, 3, 1000, 22_014_952),
    "vit_s16_conv": (224, 3, 1000, 21_002_392),
    "vit_s16_plain": (224, 3, 1000, 21_974_632),
    "vit_so400m14": (224, 3, 1000, 428_833_704),
}


def test_every_preset_has_a_golden_number():
    assert set(PRESETS) == set(GOLDEN)


@pytest.mark.filterwarnings("ignore:In 'model/")  # which a preset alone need not say
@pytest.mark.parametrize("preset", GOLDEN)
def test_a_preset_has_its_golden_number_of_parameters(preset):
    image_size, in_chans, num_classes, count = GOLDEN[preset]
    words, length = OF_TEXTS.get(preset, (13, 13 if image_size else 6))
    data = {"image_size": image_size or 32, "in_chans": in_chans, "num_classes": num_classes, "vocab_size": words}
    data |= {"max_length": length, "input_vocab_size": 33, "input_max_length": 8}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = OmegaConf.merge({"data": data}, compose(f"model/{preset}"))
    with torch.device("meta"):
        model = build_model(cfg.model)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("preset", GOLDEN)
def test_the_first_line_of_a_preset_states_its_golden_number(preset):
    image_size, _, _, count = GOLDEN[preset]
    line = (CONF / "model" / f"{preset}.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert line.startswith("# ")
    assert f" {count:,} parameters" + (f" at {image_size} px" if image_size else "") in line
