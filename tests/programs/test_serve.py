"""What is refused before a server starts."""

import json
import shutil
import socket

import pytest
from conftest import refuses
from runtime.conftest import list_files
from serving.conftest import bundle  # noqa: F401 - a fixture


@pytest.fixture
def own(bundle, tmp_path):  # noqa: F811
    return shutil.copytree(bundle.folder, tmp_path / "own")


@pytest.fixture
def started(cli, monkeypatch):
    """Run the command until it would wait for requests."""
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    return lambda *words: cli("serve", "port=0", *words)


def test_it_says_where_it_listens(started, own):
    ended = started(f"bundle={own}", "heat_maps=false")
    assert ended.status == 0, ended.err
    assert "curl --data-binary @photo.jpg http://127.0.0.1:" in ended.out
    assert "heat maps are missing: heat_maps=false was chosen" in ended.out
    assert "warning" not in ended.out
    assert "token_file= asks for a token" in started(f"bundle={own}", "heat_maps=false", "host=0.0.0.0").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["host=256.1.1.1"], "is no address of this machine"),
        (["formats=[jpeg,docx]"], "formats names docx"),
        (["formats=[]"], "formats is empty"),
        (["token_file=nowhere"], "the file of token_file cannot be read: No such file"),
        (["port=70000"], "port"),
        (["queue=0"], "queue"),
    ],
)
def test_a_wrong_value_is_refused(cli, own, words, sentence):
    ended = cli("serve", f"bundle={own}", *words)
    assert ended.status == 2
    assert refuses(ended, sentence)


def test_a_short_token_is_refused(started, own, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    assert refuses(started(f"bundle={own}", f"token_file={tmp_path / 'token'}"), "one word of 8 or more letters")


def test_a_port_in_use_is_refused(cli, own):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = cli("serve", f"bundle={own}", f"port={port}")
    assert ended.status == 2
    assert refuses(ended, f"port={port} is in use on 127.0.0.1; choose another, such as port={port + 1}")


def test_what_is_no_bundle_is_refused(started, own, tmp_path):
    (tmp_path / "empty").mkdir()
    ended = started(f"bundle={tmp_path / 'empty'}")
    assert ended.status == 4
    assert refuses(ended, f"format=bundle output={tmp_path / 'empty'}")
    list_files(own, format=0)
    assert refuses(started(f"bundle={own}"), "export the run again")
    list_files(own, task="textgeneration")
    assert refuses(started(f"bundle={own}"), "have classes to predict")


def test_damaged_or_foreign_weights_are_refused(started, own):
    (own / "model.safetensors").write_bytes(b"abc")
    assert refuses(started(f"bundle={own}"), "is not the file that bundle.json lists")
    list_files(own)
    assert started(f"bundle={own}").status == 4
    (own / "model.json").write_text(json.dumps({"_target_": "os.system", "command": "true"}))
    list_files(own)
    assert started(f"bundle={own}").status in (2, 4)


def test_a_bundle_without_weights_is_served_without_heat_maps(started, own):
    (own / "model.safetensors").unlink()
    list_files(own)
    ended = started(f"bundle={own}")
    assert ended.status == 0, ended.err
    assert "heat maps are missing: the bundle holds no weights" in ended.out
