"""Requests that a server must survive: each is answered with one of the statuses, or its client has left."""

import os
import random
import signal
import socket
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from serving.conftest import encode

IMAGE = encode()
PARTS = [(b"IHDR", bytes([0, 0, 255, 255, 0, 0, 255, 255, 8, 2, 0, 0, 0])), (b"IDAT", zlib.compress(bytes(10_000)))]


def png_bomb():
    """A PNG whose head claims 65,535 x 65,535 pixels."""
    chunks = [(b"IHDR", PARTS[0][1]), PARTS[1], (b"IEND", b"")]
    body = (len(c).to_bytes(4) + n + c + zlib.crc32(n + c).to_bytes(4) for n, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def post(server, **request):
    return server.client.post("/predict", **request).status_code


def send_raw(server, data, read=True):
    """Send bytes, and read an answer; without it, leave at once."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        if not read:
            return None
        answer = connection.recv(65536)
        return int(answer.split()[1]) if answer else None


def kill_decoder(server):
    """Kill a process that decodes, while an image is on its way."""
    listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    children = listed.read_text().split() if listed.exists() else []
    if children:
        with suppress(ProcessLookupError):
            os.kill(int(random.choice(children)), signal.SIGKILL)
    return post(server, content=IMAGE)


HEAD = b"POST /predict HTTP/1.1\r\nHost: a\r\n"
HOSTILE = {  # what is sent, and the statuses that it may be answered with; None: the connection is closed
    "empty": (lambda s: post(s, content=b""), {400}),
    "oversized": (lambda s: send_raw(s, HEAD + b"Content-Length: 99999999\r\n\r\nabc"), {413}),
    "endless chunks": (lambda s: post(s, content=iter([bytes(1_100_000)] * 2)), {413}),
    "bad chunk": (lambda s: send_raw(s, HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"), {400, None}),
    "bomb": (lambda s: post(s, content=png_bomb()), {413}),
    "truncated": (lambda s: post(s, content=IMAGE[: random.randrange(1, len(IMAGE) - 20)]), {415, 422, 200}),
    "flipped": (lambda s: post(s, content=flip(IMAGE)), {415, 413, 422, 200}),
    "wrong type": (lambda s: post(s, json={"image": "x" * 1000}), {415}),
    "noise": (lambda s: post(s, content=random.randbytes(2000)), {415}),
    "damaged form": (
        lambda s: post(s, content=IMAGE, headers={"Content-Type": "multipart/form-data; boundary=a"}),
        {400},
    ),
    "form without boundary": (lambda s: post(s, content=IMAGE, headers={"Content-Type": "multipart/form-data"}), {400}),
    "many files": (lambda s: post(s, files=[("f", b"x")] * 100), {400}),
    "no HTTP": (lambda s: send_raw(s, b"\x16\x03\x01" + random.randbytes(200) + b"\r\n\r\n"), {400, None}),
    "vanished": (lambda s: send_raw(s, HEAD + b"Content-Length: 5000\r\n\r\n" + IMAGE[:500], read=False), {None}),
    "vanished after all": (
        lambda s: send_raw(s, HEAD + b"Content-Length: %d\r\n\r\n" % len(IMAGE) + IMAGE, read=False),
        {None},
    ),
    "worker killed": (kill_decoder, {200, 422}),
    "a real one": (lambda s: post(s, content=IMAGE), {200}),
}
SLOW = {  # which take seconds each: a tenth of a percent of the requests
    "slow head": (lambda s: send_raw(s, b"POST /pre"), {None}),
    "slow body": (lambda s: send_raw(s, HEAD + b"Content-Length: 5000\r\n\r\nabc"), {408}),
}


def flip(content):
    """Change some bytes."""
    changed = bytearray(content)
    for _ in range(random.randrange(1, 30)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def read_memory(pid):
    """MiB of a process that are resident."""
    return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True).stdout) / 1024


def attack(server, count):
    """Send so many requests of all kinds, eight at a time. Each must be answered as its kind is; memory may not grow by
    more than 64 MiB after the first tenth; in the end a real image is answered."""
    random.seed(count)
    weights = [0.2 if name == "worker killed" else 1 for name in HOSTILE]  # another one takes a second to start
    slow = random.choices(list(SLOW), k=count // 1000)
    names = [*SLOW, *slow, *random.choices(list(HOSTILE), weights, k=count - len(SLOW) - len(slow))]
    kinds, odd, memory = HOSTILE | SLOW, [], []

    def send(name):
        function, statuses = kinds[name]
        try:
            status = function(server)
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError, ConnectionError) as error:
            # the answer to one that is too large comes before all is sent, which some systems report as a reset
            status = (
                None if name not in ("endless chunks", "no HTTP", "slow head", "oversized") else next(iter(statuses))
            )
            error.add_note(name)
        if status not in statuses and status != 503:
            odd.append((name, status))

    with ThreadPoolExecutor(8) as threads:
        for start in range(0, len(names), max(10, count // 10)):
            list(threads.map(send, names[start : start + max(10, count // 10)]))
            memory.append(read_memory(server.process.pid))
    assert not odd, sorted(set(odd), key=str)
    assert memory[-1] - memory[0] < 64, memory
    assert server.process.poll() is None
    assert post(server, content=IMAGE) == 200
    assert "Traceback" not in "".join(server.printed)
