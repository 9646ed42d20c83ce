"""Requests to a running server: what is answered, what is refused, and that it goes on."""

import os
import signal
import threading
import time
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from runtime.conftest import LABELS

from serving.conftest import encode, serving
from serving.hostile import HOSTILE, attack
from vitlab.views import relevance
from vitlab_runtime import load

pytestmark = [pytest.mark.ci, pytest.mark.slow]  # one server for all, which takes seconds to start


@pytest.fixture(scope="module")
def server(bundle):
    with serving(bundle.folder, "max_megabytes=2", "max_megapixels=1", "max_images=4", "deadline=20") as running:
        yield running


def test_answers_are_those_of_predict(server, bundle):
    images = [encode(seed=seed, form=form) for seed, form in enumerate(["PNG", "JPEG", "WEBP", "BMP"])]
    sent = server.client.post("/predict", files=[("file", image) for image in images], params={"top_k": 2})
    expected = load(bundle.folder, threads=1)(images)
    found = sent.json()["images"]
    assert [image["classes"][0]["name"] for image in found] == expected["class"].tolist()
    np.testing.assert_allclose([i["classes"][0]["probability"] for i in found], expected["probability"], atol=1e-4)
    np.testing.assert_allclose([image["novelty"] for image in found], expected["novelty"], atol=1e-4)
    assert [image["none_of_these"] for image in found] == [one == "yes" for one in expected["none_of_these"]]
    assert all(len(image["classes"]) == 2 for image in found)
    (alone,) = server.client.post("/predict", content=images[0]).json()["images"]
    assert alone["classes"][:2] == found[0]["classes"]


def test_a_heat_map_is_that_of_the_views(server, bundle):
    content = encode(seed=5)
    (found,) = server.client.post("/predict", content=content, params={"heat_map": True}).json()["images"]
    pixels = torch.from_numpy(pixels_of(bundle, content))
    place = LABELS.index(found["classes"][0]["name"])
    expected = relevance(bundle.model, pixels, place).reshape(8, 8)
    np.testing.assert_allclose(found["heat_map"], expected / expected.max(), atol=1e-3)


def pixels_of(bundle, content):
    """(1, C, S, S), normalised"""
    from vitlab_runtime.pixels import Preprocessing

    preprocessing = Preprocessing(**bundle.preprocessing)
    return preprocessing.normalize(preprocessing.load(content)[None])


def test_an_explanation_changes_with_the_patches(server, bundle):
    content = encode(seed=6)
    whole = server.client.post("/explain", content=content).json()
    assert (len(whole["attention"]), whole["grid"], len(whole["heat_map"])) == (2, [8, 8], 64)
    np.testing.assert_allclose(np.mean(whole["rollout"], axis=1), 1, atol=1e-3)
    every = ",".join(map(str, range(64)))
    blank = server.client.post("/explain", content=content, params={"remove": every, "class_name": "dog"}).json()
    assert blank["class_name"] == "dog"
    with torch.no_grad():
        expected = bundle.scorer(torch.zeros(1, 3, 32, 32))[1][0]
    best = blank["answer"]["classes"][0]
    assert best["probability"] == pytest.approx(float(expected.max()), abs=0.01)  # the mean is rounded to 8 bits
    assert blank["picture"] != whole["picture"]
    assert "there are 64" in server.client.post("/explain", content=content, params={"remove": "64"}).json()["error"]
    assert server.client.post("/explain", content=content, params={"class_name": "cow"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "request_", "status", "words"),
    [
        ("/predict", {"content": b""}, 400, "holds no image"),
        ("/predict", {"content": b"GIF89a"}, 415, "no image in one of the formats jpeg, png"),
        ("/predict", {"content": encode()[:700]}, 422, "is damaged"),
        ("/predict", {"content": encode((1200, 900), "JPEG")}, 413, "1200 x 900 pixels are more than the limit of 1"),
        ("/predict", {"content": bytes(3_000_000)}, 413, "more than the 2,000,000 bytes"),
        ("/predict", {"content": iter([bytes(1_500_000)] * 2)}, 413, "more than the 2,000,000 bytes"),
        ("/predict", {"files": [("f", encode())] * 5}, 400, "more than 4 files"),
        ("/predict", {"files": [("f", encode()), ("f", b"x")]}, 415, "file 2 was not accepted"),
        ("/predict", {"files": [("f", encode()), ("f", b"")]}, 400, "file 2 is empty"),
        ("/predict", {"data": {"a": "b"}}, 415, "no image"),
        ("/predict?top_k=0", {"content": encode()}, 422, "top_k is wrong"),
        ("/explain?remove=a", {"content": encode()}, 422, "remove is wrong"),
        ("/predict?seconds=0.000001", {"content": encode()}, 504, "within 1e-06 seconds"),
        ("/elsewhere", {"content": encode()}, 404, "is unknown"),
    ],
)
def test_a_refusal_is_one_sentence(server, path, request_, status, words):
    sent = server.client.post(path, **request_)
    assert (sent.status_code, list(sent.json())) == (status, ["error"])
    assert words in sent.json()["error"]
    assert not any(leak in sent.text for leak in ("Traceback", "/src/", "0x", "\\n", "site-packages"))
    assert server.client.post("/predict", content=encode()).status_code == 200


def test_what_others_ask_of_a_server(server):
    for path in ("/health", "/ready", "/", "/page.js", "/page.css", "/classes"):
        assert server.client.get(path).status_code == 200, path
    assert "default-src 'none'" in server.client.get("/").headers["content-security-policy"]
    described = server.client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/predict", "/explain", "/classes", "/health", "/ready", "/metrics"}
    assert set(described["paths"]["/predict"]["post"]["requestBody"]["content"]) == {"image/*", "multipart/form-data"}
    before = server.client.get("/metrics").text
    server.client.post("/predict", content=encode())
    after = server.client.get("/metrics").text
    assert read_count(after) == read_count(before) + 1


def read_count(text):
    (line,) = [line for line in text.splitlines() if line.startswith("vitlab_images_total ")]
    return float(line.split()[1])


def test_hostile_requests_are_answered_and_leave_nothing(server):
    attack(server, 300)


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
def test_ten_thousand_hostile_requests(bundle):
    with serving(bundle.folder, "max_megabytes=2", "max_megapixels=1", "max_images=4", "deadline=20") as running:
        attack(running, 10_000)


def test_every_kind_of_hostile_request_is_tried():
    assert len(HOSTILE) >= 10


def test_a_full_queue_is_refused_and_open_requests_are_answered_after_sigterm(bundle):
    with serving(bundle.folder, "queue=2", "heat_maps=false") as running:
        found, entered = [], threading.Semaphore(0)

        def slowly():
            content = encode()
            yield content[:100]
            entered.release()
            time.sleep(2)
            yield content[100:]

        def ask():
            found.append(httpx.post(f"{running.address}/predict", content=slowly(), timeout=60).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert entered.acquire(timeout=30)
        time.sleep(0.5)
        full = running.client.post("/predict", content=encode())
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        assert running.client.get("/ready").status_code == 503
        running.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        assert found == [200, 200]
        assert running.process.wait(60) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert "Traceback" not in "".join(running.printed)


def test_a_sigterm_to_all_processes_lets_the_decoders_finish(bundle):
    with serving(bundle.folder, "heat_maps=false") as running:
        assert running.client.post("/predict", content=encode()).status_code == 200
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
        decoders = [int(child) for child in children.read_text().split()]
        assert decoders
        for decoder in decoders:
            os.kill(decoder, signal.SIGTERM)
        time.sleep(0.5)
        assert set(decoders) <= {int(child) for child in children.read_text().split()}
        assert running.client.post("/predict", content=encode()).status_code == 200


def test_a_token_is_asked_for(bundle, tmp_path):
    (tmp_path / "token").write_text("open-sesame\n")
    with serving(bundle.folder, f"token_file={tmp_path / 'token'}", "heat_maps=false") as running:
        for headers in ({}, {"Authorization": "Bearer open"}, {"Authorization": "Basic open-sesame"}):
            refused = running.client.post("/predict", content=encode(), headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        right = {"Authorization": "Bearer open-sesame"}
        assert running.client.post("/predict", content=encode(), headers=right).status_code == 200
        assert running.client.get("/metrics").status_code == 401
        assert running.client.get("/health").status_code == 200
        assert "open-sesame" not in "".join(running.printed)
        missing = running.client.post("/predict?heat_map=true", content=encode(), headers=right)
        assert "heat_maps=false" in missing.json()["error"]


def test_the_memory_of_a_decoder_is_limited(bundle):
    with BytesIO() as file:
        Image.new("RGB", (6000, 6000)).save(file, "PNG")  # 144 MB once decoded, 100 kB as a file
        large = file.getvalue()
    with serving(bundle.folder, "memory_gib=0.1", "heat_maps=false") as running:
        refused = running.client.post("/predict", content=large)
        assert (refused.status_code, "more memory" in refused.json()["error"]) == (413, True)
        assert running.client.post("/predict", content=encode()).status_code == 200
    with serving(bundle.folder, "heat_maps=false") as running:
        assert running.client.post("/predict", content=large).status_code == 200
