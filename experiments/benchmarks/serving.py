"""Ask three servers of the same bundle under load: ours, and the smallest one of FastAPI and of LitServe.

    python experiments/benchmarks/serving.py bundle clients=1,4,16,64 seconds=6 > experiments/benchmarks/serving.md

Each runs in its own processes, with one thread for the model, on loopback. LitServe hands requests on to the process
of the model as JSON, so its image comes in base 64. The clients are coroutines of one process
(httpx); each sends the next image when it has the answer. The servers take turns. Needs httpx, pip install litserve.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
PREDICTOR = """
import vitlab_runtime
predict = vitlab_runtime.load({bundle!r}, threads=1, batch_size=32)
def answer(contents):
    found = predict(contents)
    return [{{"name": str(n), "probability": float(p)}} for n, p in zip(found["class"], found["probability"])]
"""
FASTAPI = (
    PREDICTOR
    + """
import uvicorn
from fastapi import FastAPI, Request
app = FastAPI()
@app.get("/ready")
def ready(): return "ok"
@app.post("/predict")
async def serve(request: Request): return answer([await request.body()])
uvicorn.run(app, port={port}, log_level="error", access_log=False)
"""
)
LITSERVE = (
    PREDICTOR.replace("predict = ", "load = lambda: ")
    + """
import base64
import litserve
class API(litserve.LitAPI):
    def setup(self, device):
        global predict
        predict = load()
    def decode_request(self, request): return base64.b64decode(request["image"])
    def batch(self, inputs): return inputs
    def predict(self, contents): return answer(contents)
    def unbatch(self, output): return output
    def encode_response(self, output): return output
if __name__ == "__main__":
    api = API(max_batch_size=32, batch_timeout=0.002)
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(port={port}, generate_client_file=False, log_level="error", host="127.0.0.1")
"""
)


def start(name, bundle, port):
    """Start a server, and return its process once it answers."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "runtime")}
    if name == "vitlab":
        words = [ROOT / "src" / "serve.py", f"bundle={bundle}", f"port={port}", "threads=1", "heat_maps=false"]
        words += ["queue=128", "deadline=60"]
    else:
        script = Path("build") / f"{name}_hello.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text({"fastapi": FASTAPI, "litserve": LITSERVE}[name].format(bundle=str(bundle), port=port))
        words = [script]
    process = subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    ready = "/health" if name == "litserve" else "/ready"
    for _ in range(600):
        try:
            if httpx.get(f"http://127.0.0.1:{port}{ready}").status_code == 200:
                return process
        except httpx.TransportError:
            time.sleep(0.2)
    raise SystemExit(f"{name} does not start")


def find_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


async def load(port, sent, clients, seconds):
    """Ask with so many clients for so long; returns the seconds of each answer, and how many were none."""
    times, failed, end = [], 0, 0.0

    async def ask(client):
        nonlocal failed
        while (begin := time.perf_counter()) < end:
            try:
                done = await client.post("/predict", **sent)
                failed += done.status_code != 200
            except httpx.TransportError:
                failed += 1
            times.append(time.perf_counter() - begin)

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as client:
        await client.post("/predict", **sent)
        end = time.perf_counter() + seconds
        await asyncio.gather(*(ask(client) for _ in range(clients)))
    return times, failed


def main():
    bundle = Path(sys.argv[1]).resolve()
    options = dict(word.split("=") for word in sys.argv[2:])
    counts = [int(count) for count in options.get("clients", "1,4,16,64").split(",")]
    seconds = float(options.get("seconds", 6))
    with BytesIO() as file:
        pixels = np.random.RandomState(0).randint(0, 256, (240, 320, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(file, "JPEG")
        content = file.getvalue()
    names = ("vitlab", "fastapi", "litserve")
    sent = {"vitlab": {"content": content}, "fastapi": {"content": content}}
    sent["litserve"] = {"json": {"image": b64encode(content).decode()}}
    ports = {name: find_port() for name in names}
    processes = {name: start(name, bundle, port) for name, port in ports.items()}
    versions = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "uvicorn", "litserve", "onnxruntime"))
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {versions}.")
    print(f"A JPEG of 640 x 480 pixels, {len(content):,} bytes; {seconds:g} seconds for each row, in turns.\n")
    columns = ("clients", "server", "answers/s", "× FastAPI", "p50 ms", "p95 ms", "p99 ms", "failed")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    try:
        for count in counts:
            rows = {name: asyncio.run(load(ports[name], sent[name], count, seconds)) for name in names}
            rates = {name: len(times) / seconds for name, (times, _) in rows.items()}
            for name, (times, failed) in rows.items():
                cells = [rates[name], rates[name] / rates["fastapi"], *(1000 * np.percentile(times, [50, 95, 99]))]
                print(f"| {count} | {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {failed} |", flush=True)
    finally:
        for process in processes.values():
            os.killpg(process.pid, signal.SIGTERM)  # LitServe does not end its own processes


if __name__ == "__main__":
    main()
