"""A job without training: python stub.py resume=FOLDER. What it does, its name says: sleep-SECONDS, fail, fail-once."""

import json
import os
import sys
import time
from pathlib import Path

from vitlab.checkpoints.run_lock import take

folder = Path(next(word for word in sys.argv if word.startswith("resume=")).removeprefix("resume="))
folder.mkdir(exist_ok=True)
take(folder, break_lock=False)
with open(folder / "starts", "a") as starts:
    starts.write(f"{os.getpid()}\n")
print(f"this is {folder.name}")
print(os.getcwd(), os.environ.get("VITLAB_DATA"))
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS"))
what = folder.name.split("_")[-1]
if what.startswith("sleep"):
    time.sleep(float(what.split("-")[1]))
if what == "fail" or (what == "fail-once" and len((folder / "starts").read_text().split()) == 1):
    print("ConfigError: it was told to fail")
    sys.exit(2)
with open(folder / "ends", "a") as ends:
    ends.write(f"{os.getpid()}\n")
(folder / ".result.json").write_text(json.dumps({"score": len(folder.name), "test": {}}))
os.rename(folder / ".result.json", folder / "result.json")
