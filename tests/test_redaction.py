"""What a run keeps about itself holds no secret."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import BARE, TINY, image_folder, refuses
from omegaconf import OmegaConf
from test_configs import composed

from vitlab.config.nodes import resolve_config
from vitlab.config.redaction import SHORTEST, Redaction, is_secret

IN_ADDRESSES = {  # what is secret in each of these addresses
    "https://me:pass99word@host/x": ["me:pass99word"],
    "s3://me:pass99word@bucket/x": ["pass99word"],
    "ftp://me:pa/ss99word@host:21/x": ["ss99word"],
    "ftp://me:pa@ss99word@host/x": ["ss99word"],
    "https://onlyme99@host/x": ["onlyme99"],
    "https://host/x?token=tok99tok": ["tok99tok"],
    "https://host/x?v=1&access_token=tok99tok": ["tok99tok"],
    "https://host/x?X-Amz-Signature=sig99sig&X-Amz-Date=2026": ["sig99sig"],
    "https://host/x?sv=2026&sig=sig%2F99sig": ["sig%2F99sig"],
    "https://host/x#apiKey=key99key": ["key99key"],
    "simplecache::https://me:pass99word@host/x": ["pass99word"],
}
UNDER_KEYS = {
    "password": "pass99word",
    "db_password": "pass99word",
    "passwd": 99990000,
    "api_key": "key99key",
    "apikey": "key99key",
    "apiKey": "key99key",
    "accessKey": "key99key",
    "secret": ["one99one", {"deep": "two99two"}],
    "aws_secret_access_key": "key/99+key=",
    "client_secret": "a99 b99",
    "auth_token": "tok99tok",
    "Authorization": "Bearer tok99tok",
    "credentials": {"user": "me99me", "pin": 99990000},
    "private_key": "-----BEGIN\nkey99key",
    "token": 3.14159,
}
SHAPES = [
    *(({"root": address}, secrets) for address, secrets in IN_ADDRESSES.items()),
    *(({name: value}, None) for name, value in UNDER_KEYS.items()),
    ({"root": "${oc.env:A_PLACE}"}, ["s3cr3t-'from'-env"]),
    ({"root": "/data/${oc.env:A_PLACE}/x"}, ["s3cr3t-'from'-env"]),
    ({"tags": ["${oc.env:A_PLACE}"]}, ["s3cr3t-'from'-env"]),
    ({"headers": {"Authorization": "${oc.env:A_PLACE}"}}, ["s3cr3t-'from'-env"]),
]


def leaves(value):
    if isinstance(value, dict | list):
        return [leaf for inner in (value.values() if isinstance(value, dict) else value) for leaf in leaves(inner)]
    return [str(value)]


@pytest.mark.parametrize(("given", "secrets"), SHAPES, ids=str)
def test_no_shape_of_a_secret_is_kept_or_printed(given, secrets, monkeypatch, capsys):
    monkeypatch.setenv("A_PLACE", "s3cr3t-'from'-env")
    cfg = OmegaConf.create({"place": {"inner": given}, "seed": 1})
    values, redaction = resolve_config(cfg), Redaction(cfg)
    secrets = secrets or leaves(given)
    ((name, value),) = values["place"]["inner"].items()
    words = [f"place.inner.{name}={value}", f"+place.inner={{{name}:{json.dumps(value)}}}"]
    kept = [json.dumps(redaction(values)), str(redaction(words)), OmegaConf.to_yaml(redaction(values))]
    kept += [redaction.text(f"cannot use {leaf!r}, {leaf}") for leaf in leaves(value) if len(leaf) >= SHORTEST]
    with redaction.redact_output():
        print(f"cannot use {value}")
    kept.append(capsys.readouterr().out)
    for secret in secrets:
        assert not any(secret in text for text in kept), kept
    assert "seed" in kept[0]


@pytest.mark.parametrize(
    "harmless", ["https://host:8080/path@2x.png", "s3://bucket/a/b@c.tar", "/data/a:b@c", "hf://org/name?revision=main"]
)
def test_addresses_without_a_login_stay(harmless):
    assert Redaction(OmegaConf.create({"root": harmless}))({"root": harmless}) == {"root": harmless}


SECRETS = ("s3cr3t-from-env", "pa/ss99word", "ss99word", "tok99tok", "team99team", "other99tok")
AGAIN = ["++data.source.root=s3cr3t-from-env", "++data.cache.root=cache", "++callbacks.latest_state.copy_to=null"]


@pytest.fixture
def secretive(cli, tmp_path, monkeypatch):
    """A run that was given secrets, and logs to W&B."""
    monkeypatch.setenv("A_PLACE", "s3cr3t-from-env")
    monkeypatch.setenv("A_TEAM", "team99team")
    image_folder(tmp_path / "s3cr3t-from-env", splits=("train", "val", "test"))
    options = ["data=folder", "data.source.root=${oc.env:A_PLACE}", "data.num_classes=2", "data.image_size=8"]
    options += ["global_batch_size=4", "trainer.max_steps=1", "trainer.max_epochs=-1", *BARE, "logger=wandb"]
    options += [
        "data.cache.root='https://me:pa/ss99word@host/x?token=tok99tok'",
        "logger.wandb.entity=${oc.env:A_TEAM}",
    ]
    options += ["callbacks.latest_state.copy_to='memory://kept?sig=other99tok'"]
    run = cli("train", *options, folder="run")
    assert run.status == 0, run.err
    assert not any(secret in run.out for secret in SECRETS)
    return run.folder


def kept(folder):
    """What stands in the files of a run. W&B itself must know the entity that it will send a run to."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = {path: path.read_bytes() for path in files}
    return {path: text.replace(b"team99team", b"") if "wandb" in path.parts else text for path, text in texts.items()}


@pytest.mark.ci
@pytest.mark.slow
def test_no_file_of_a_run_holds_a_secret(secretive):
    found = kept(secretive)
    for secret in SECRETS:
        assert not [path for path, content in found.items() if secret.encode() in content], secret
    assert any(b"<not kept>" in content for content in found.values())


@pytest.mark.slow
def test_no_command_keeps_or_prints_a_secret(cli, secretive, tmp_path):
    """But for names of images, which are what they are asked for."""
    address = "data.cache.root='https://me:pa/ss99word@host/x?token=tok99tok'"
    own = ["data=folder", "data.source.root=${oc.env:A_PLACE}", address]
    for command in (
        ["evaluate", "run=run", "++data.source.root=${oc.env:A_PLACE}", f"++{address}"],
        ["predict", "run=run", "images=s3cr3t-from-env/test/cat"],
        ["visualize", "run=run", "views=[position,filters]"],
        ["export", "run=run", "output=out"],
        ["features", *own, "model=vit_mu4", "output=f.npz"],
        ["probe", *own, "model=vit_mu4", "shots=[1]", "k=[1]", "output=p.json"],
        ["survey", *own, "output=survey"],
        ["preview", *own, "model=vit_mu4", "output=preview"],
        ["check", *own, "model=vit_mu4", "seconds=0", "logger=none"],
        ["summary", *own, "data.num_classes=2", "data.image_size=8", "data.in_chans=3", "model=vit_mu4"],
        ["pack", *own, "output=packed"],
        ["train", "-m", "seed=0,1", *own, *TINY[:2], "trainer.max_steps=1", "trainer.max_epochs=-1", "logger=none"],
    ):
        done = cli(*command, tiny=False)
        if command[0] == "train":
            assert refuses(done, "data.cache.root is a secret")
        else:
            assert done.status == 0, done.err
        assert not any(secret in done.out + done.err for secret in SECRETS[1:])
    for secret in SECRETS[1:]:
        assert not [path for path, content in kept(tmp_path).items() if secret.encode() in content], secret
    facts = [np.load("f.npz")["metadata"].item(), Path("p.json").read_text()]
    assert not any("s3cr3t-from-env" in text for text in facts)


@pytest.mark.ci
@pytest.mark.slow
def test_what_is_not_kept_is_asked_for_again(cli, secretive):
    scored = cli("evaluate", "run=run")
    assert scored.status == 2
    assert "data.source.root is a secret, which a run does not store" in scored.err
    scored = cli("evaluate", "run=run", *AGAIN[:2])
    assert scored.status == 0, scored.err
    resumed = cli("train", "resume=run", "trainer.max_steps=2", tiny=False)
    assert resumed.status == 2
    assert "give it again: ++data.source.root=" in resumed.err
    again = [*AGAIN, "++logger.wandb.entity=null"]
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
    assert Redaction(cfg)(resolve_config(cfg)) == json.loads(json.dumps(resolve_config(cfg)))
    assert is_secret("logger.wandb.api_key")
    assert not is_secret("crop.train.max_tokens")
