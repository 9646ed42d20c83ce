"""Whose code a config may build: ours, what the user's YAMLs name, and what the user trusts."""

import sys

import pytest
from omegaconf import OmegaConf

from vitlab.config.build import build, is_trusted
from vitlab.config.trust import check_trust, list_packages, trust_words, trusting
from vitlab.errors import ConfigError

NODE = {"_target_": "lab_of_trust.build_value", "value": 3}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    (tmp_path / "lab_of_trust.py").write_text("def build_value(*, value: int):\n    return value + 1\n")
    (tmp_path / "broken_lab.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("lab_of_trust", "broken_lab"):
        sys.modules.pop(name, None)


def test_own_code_is_built_while_it_is_trusted_and_not_after(lab):
    with pytest.raises(
        ConfigError, match=r"loss: _target_ lab_of_trust.build_value is not part .* trust=\[lab_of_trust\]"
    ):
        build(OmegaConf.create(NODE), "loss")
    with trusting(["lab_of_trust"]):
        assert build(OmegaConf.create(NODE), "loss") == 4
    assert not is_trusted(NODE["_target_"])


def test_trust_in_a_package_reaches_no_other_with_a_longer_name(lab):
    with trusting("lab_of_trust"):
        assert is_trusted("lab_of_trust.a.b")
        assert not is_trusted("lab_of_trust_of_others.a")
        assert not is_trusted("os.system")


def test_yamls_of_the_users_folder_name_what_may_be_built(lab, monkeypatch):
    (lab / "conf" / "loss").mkdir(parents=True)
    (lab / "conf" / "loss" / "mine.yaml").write_text("_target_: lab_of_trust.build_value\nvalue: 1\n")
    for module in ("build", "trust"):
        monkeypatch.setattr(f"vitlab.config.{module}.OF_THE_USER", [str(lab / "conf")])
    with trusting(()):
        assert build(OmegaConf.create(NODE), "loss") == 4
    assert not is_trusted("lab_of_trust.other")
    assert trust_words(()) == [f"--config-dir={lab / 'conf'}"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_lab", "No module named 'no_such_lab'; run the command in the folder of the package, or install it"),
        ("broken_lab", "trust=broken_lab: the import fails with No module named 'no_such_package'"),
        ("my-lab", "is not the name of your package"),
        ("os", "is not the name of your package"),
        ("a..b", "is not the name of your package"),
    ],
)
def test_packages_that_cannot_be_imported_are_refused(lab, name, sentence):
    with pytest.raises(ConfigError, match=sentence), trusting([name]):
        pass


@pytest.mark.parametrize(
    ("config", "packages"),
    [
        ({"loss": {"_target_": "vitlab.losses.softmax_cross_entropy"}}, []),
        ({"loss": {"_target_": "mylab.loss"}, "trust": ["other"]}, ["mylab", "other"]),
        ({"trust": "mylab", "loss": {"_target_": "mylab.sub.loss"}}, ["mylab"]),
    ],
)
def test_a_saved_config_names_the_packages_it_needs(config, packages):
    assert list_packages(config) == packages
    if packages:
        with pytest.raises(ConfigError, match=rf"trust=\[{','.join(packages)}\]"):
            check_trust(config, "a.ckpt")
    else:
        check_trust(config, "a.ckpt")


def test_code_of_python_itself_is_never_trusted():
    with pytest.raises(ConfigError, match=r"the config in a\.ckpt names os\.system, which no run needs"):
        check_trust({"callbacks": [{"_target_": "os.system"}], "trust": ["os"]}, "a.ckpt")
