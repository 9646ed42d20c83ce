"""Jobs of a sweep as they are frozen: composed as Hydra composes them, and without secrets."""

import json

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from vitlab.config.composition import VERSION_BASE
from vitlab.config.home import CONF
from vitlab.config.nodes import remove_keys
from vitlab.config.recipe import fit
from vitlab.config.sweep_jobs import Composer, describe_request, format_yaml, read_frozen_run, secret_words
from vitlab.errors import ConfigError

COMMON = ["model=vit_mu4", "trainer=cpu", "~callbacks.model_views"]


@pytest.fixture
def sweep():
    """sweep(words): the config that a sweep starts from, and what loads it."""
    with initialize_config_dir(str(CONF), job_name="train", **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()

        def made(*words):
            master = loader.load_configuration("train", list(words), RunMode.MULTIRUN)
            HydraConfig.instance().set_config(master)
            return master, loader

        yield made


def plain(cfg):
    return OmegaConf.to_container(remove_keys(cfg, ("hydra",)), resolve=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [
        ["seed=3"],
        ["optimizer.lr=1e-3", "trainer.max_steps=5"],
        ["model=vit_ti4", "seed=1"],
        ["callbacks=[default,ema]", "callbacks.ema.decay=0.5"],
        ["++trainer.limit_val_batches=2", "~callbacks.batch_picture"],
        ["optimizer.algorithm.betas=[0.5,0.6]", "name='a b'"],
        ["optimizer=sgd", "schedule=linear"],
        ["recipe=digits", "seed=2"],
        ["recipe=digits", "augmentation=none", "optimizer.lr=1e-2"],
    ],
    ids=" ".join,
)
def test_a_job_is_what_hydra_composes_of_its_words(sweep, own):
    """Also when another one was composed before from the same files."""
    master, loader = sweep(*COMMON)
    composer = Composer(master, loader)
    composer(0, COMMON, [*own[:-1], own[-1]])
    wanted = loader.load_sweep_config(master, [*COMMON, *own])
    fit(wanted, [*COMMON, *own], loader)
    assert plain(composer._compose(COMMON, own)[0]) == plain(wanted)
    assert plain(composer._compose(COMMON, own)[0]) == plain(wanted)  # what the first one was given stays out of it


def test_files_are_read_once_for_each_choice_of_groups(sweep, monkeypatch):
    master, loader = sweep(*COMMON)
    composer, read = Composer(master, loader), []
    load = loader.load_sweep_config
    monkeypatch.setattr(loader, "load_sweep_config", lambda *words: read.append(words) or load(*words))
    for number, words in enumerate((["seed=0"], ["seed=1"], ["model=vit_ti4", "seed=0"], ["model=vit_ti4", "seed=1"])):
        composer(number, COMMON, words)
    assert len(read) == 2


def test_a_job_is_named_by_what_is_its_own(sweep):
    composer = Composer(*sweep(*COMMON))
    assert composer(0, COMMON, ["seed=3", "model.pool=mean"]).name == "model.pool-mean_seed-3"
    assert composer(0, COMMON, ["optimizer.lr=0.00123456789"]).name == "optimizer.lr-0.001235"
    assert composer(0, COMMON, []).name == "defaults"


def test_what_is_kept_composes_no_more_and_runs_on_another_machine(sweep):
    found = Composer(*sweep(*COMMON))(0, COMMON, ["optimizer.lr=0.5"])
    assert found.config["optimizer"]["lr"] == 0.5
    assert found.config["trainer"]["precision"] == "auto"  # measured where it runs
    assert found.config["name"] == "vit_mu4_digits"
    assert found.choices["model"] == "vit_mu4"
    assert (found.monitor, found.overrides) == ("val/acc1", [*COMMON, "optimizer.lr=0.5"])
    assert not {"sweep", "engine"} & found.config.keys()
    assert yaml.safe_load(format_yaml(found.config))["optimizer"]["lr"] == 0.5


def test_no_secret_is_kept_and_jobs_read_them_from_their_environment(sweep, monkeypatch):
    monkeypatch.setenv("WHO", "somebody")
    words = [*COMMON, "logger=wandb", "logger.wandb.entity='${oc.env:WHO}'", "+logger.wandb.api_key=abcdefgh"]
    master, loader = sweep(*words)
    told = [format_yaml(describe_request(master, same=words)).decode()]
    with pytest.raises(ConfigError, match="api_key"):  # which no logger takes
        Composer(master, loader)(0, words, ["seed=1"])
    found = Composer(master, loader)(0, words[:-1], ["seed=1"])
    told += [format_yaml(found.config).decode(), str(found)]
    assert not any(secret in text for secret in ("somebody", "abcdefgh") for text in told)
    assert secret_words(sweep(*words[:-1])[0]) == ["++logger.wandb.entity='${oc.env:WHO}'"]
    with pytest.raises(ConfigError, match=r"logger.wandb.api_key is a secret.*oc.env:NAME"):
        secret_words(master)


def test_a_key_that_nothing_takes_is_refused(sweep):
    composer = Composer(*sweep(*COMMON))
    for word in ("+optimizer.lrr=1", "+optimizer.algorithm.lrr=1", "+model.depht=3", "+trainer.max_stepps=1"):
        with pytest.raises(ConfigError, match=word[1:].split("=")[0].rsplit(".", 1)[-1]):
            composer(0, COMMON, [word])


def test_a_job_that_has_not_begun_knows_the_words_that_repeat_it(tmp_path):
    job = {"overrides": ["model=vit_mu4", "seed=1"], "choices": {"model": "vit_mu4"}, "run_id": "0"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "config.yaml").write_text("model: {}\n")
    assert read_frozen_run(tmp_path)["run"]["words"] == ["model=vit_mu4", "seed=1"]
