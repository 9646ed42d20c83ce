"""What a run keeps about itself holds no secret."""

import json

import pytest
from conftest import BARE, image_folder
from omegaconf import OmegaConf
from test_configs import composed

from vitlab.config.build import plain
from vitlab.config.redaction import Redaction, is_secret

SECRETS = ("s3cr3t-from-env", "me:pass99word")


@pytest.fixture
def secretive(cli, tmp_path, monkeypatch):
    """A run that was given secrets, and logs to W&B."""
    monkeypatch.setenv("A_PLACE", "s3cr3t-from-env")
    image_folder(tmp_path / "s3cr3t-from-env", splits=("train", "val", "test"))
    options = ["data=folder", "data.source.root=${oc.env:A_PLACE}", "data.num_classes=2", "data.image_size=8"]
    options += ["global_batch_size=4", "trainer.max_steps=1", "trainer.max_epochs=-1", *BARE, "logger=wandb"]
    options += ["data.cache.root='https://me:pass99word@host/x'"]
    run = cli("train", *options, folder="run")
    assert run.status == 0, run.err
    return run.folder


def kept(folder):
    """What stands in the files of a run, those that W&B packs included."""
    found = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".wandb")
    for file in folder.glob("wandb/offline-run-*/run-*.wandb"):
        found += file.read_bytes()
    return found


@pytest.mark.ci
@pytest.mark.slow
def test_no_file_of_a_run_holds_a_secret(secretive):
    content = kept(secretive)
    for secret in SECRETS:
        assert secret.encode() not in content
    assert b"<not kept>" in content


@pytest.mark.ci
@pytest.mark.slow
def test_what_is_not_kept_is_asked_for_again(cli, secretive):
    evaluated = cli("evaluate", "run=run")
    assert evaluated.status == 2
    assert "data.source.root held a secret" in evaluated.err
    again = ["++data.source.root=s3cr3t-from-env", "++data.cache.root=cache"]
    evaluated = cli("evaluate", "run=run", *again)
    assert evaluated.status == 0, evaluated.err
    resumed = cli("train", "resume=run", "trainer.max_steps=2", tiny=False)
    assert resumed.status == 2
    assert "give it again: ++data.source.root=" in resumed.err
    resumed = cli("train", "resume=run", "trainer.max_steps=2", *again, tiny=False)
    assert resumed.status == 0, resumed.err


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ({"api_key": "abc", "max_tokens": 196, "class_token": True, "token": None}, {"api_key": "<not kept>"}),
        (["logger.wandb.api_key=abc"], ["logger.wandb.api_key=<not kept>"]),
        (["+a.Password='x y'", "seed=1"], ["+a.Password=<not kept>", "seed=1"]),
        ({"root": "s3://me:pw@host/x"}, {"root": "s3://<not kept>@host/x"}),
        ("from the environment", "<not kept>"),
        (["data.source.root=from the environment"], ["data.source.root=<not kept>"]),
    ],
)
def test_values_without_their_secrets(value, safe, monkeypatch):
    monkeypatch.setenv("SOME_PLACE", "from the environment")
    made = Redaction(OmegaConf.create({"a": {"root": "${oc.env:SOME_PLACE}"}}))(value)
    assert made == ({**value, **safe} if isinstance(value, dict) else safe)


def test_no_key_of_ours_looks_like_a_secret():
    cfg = composed()
    assert Redaction(cfg)(plain(cfg)) == json.loads(json.dumps(plain(cfg)))
    assert is_secret("logger.wandb.api_key")
    assert not is_secret("crop.train.max_tokens")
