"""Two hosts, which are network namespaces joined by a cable: torchrun brings them together, and a host that is cut off
is named by the other."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from socket import gethostname

import pytest
from conftest import SRC
from test_lost_process import SHORT_TIMEOUT
from test_signals import rows, same_states
from two_processes import ENTRY, TWO, until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(900)]

ADDRESS = "10.177.83.{}"
CUT = (
    SHORT_TIMEOUT
    + """
from vitlab.tasks import Classification
step = Classification.training_step
def cut_off(self, batch, batch_idx):
    if os.environ["RANK"] == "1" and self.global_step == 6 and not os.path.exists("cut"):
        open("here", "w").close()
        while not os.path.exists("cut"):
            time.sleep(0.1)
    return step(self, batch, batch_idx)
Classification.training_step = cut_off
"""
)
WORDS = [*TWO, "trainer.devices=1", "trainer.num_nodes=2", "~callbacks.evaluation_report", "resume=auto"]
WORDS += ["data.split.labels_per_class=26", "trainer.max_epochs=3", "callbacks.latest_state.every_n_steps=2"]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts():
    """The names of two namespaces with an address each."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip, of iproute2")
    names = [f"vitlab{os.getpid()}{letter}" for letter in "ab"]
    made = [ip("netns", "add", name) for name in names]
    made.append(ip("link", "add", "e0", "netns", names[0], "type", "veth", "peer", "name", "e0", "netns", names[1]))
    try:
        if refused := [one.stderr.strip() for one in made if one.returncode]:
            pytest.skip(f"network namespaces are not permitted here: {refused[0]}")
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"{ADDRESS.format(number)}/24", "dev", "e0")
            for device in ("lo", "e0"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            end_all(name)
            ip("netns", "del", name)


def end_all(host):
    for pid in ip("netns", "pids", host).stdout.split():
        os.kill(int(pid), signal.SIGKILL)


@contextmanager
def both(hosts, folder, patch=""):
    """The same command on both hosts, which share a disk."""
    folder.mkdir(exist_ok=True)
    (folder / "entry.py").write_text(ENTRY.format(src=str(SRC), patch=patch), encoding="utf-8")
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "e0"}
    starts = []
    for number, host in enumerate(hosts, 1):
        command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
        command += ["--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESS.format(1)}:29500"]
        command += [f"--local-addr={ADDRESS.format(number)}", f"--rdzv-conf=is_host={2 - number}", "entry.py", *WORDS]
        with open(folder / f"log{number}", "w") as log:
            starts.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **own}))
    yield starts


def trained(hosts, folder, patch=""):
    with both(hosts, folder, patch) as starts:
        statuses = [start.wait(200) for start in starts]
    assert statuses == [0, 0], told(folder)
    (run,) = folder.glob("runs/*/*")
    return run


def told(folder):
    return "\n".join(log(folder, number)[-4000:] for number in (1, 2))


def lost(folder, number):
    """Who did not answer, as the process of a host says it; None before it does."""
    found = re.search(r"DistributedError: another process of this run did not answer \((.*?)\)", log(folder, number))
    return found and found[1]


def log(folder, number):
    return (folder / f"log{number}").read_text()


def test_a_host_that_is_cut_off_is_named_and_the_same_command_goes_on_when_it_is_back(hosts, tmp_path):
    whole = trained(hosts, tmp_path / "undisturbed")
    folder = tmp_path / "cut_off"
    with both(hosts, folder, CUT) as starts:
        until((folder / "here").exists, 200)
        ip("-n", hosts[1], "link", "set", "e0", "down")
        (folder / "cut").touch()
        assert starts[0].wait(60) != 0
        assert lost(folder, 1) == f"rank 1 on {gethostname()}"
        until(lambda: lost(folder, 2), 60)
        assert lost(folder, 2) == "rank 0"
        end_all(hosts[1])  # torchrun looks for the other one for minutes
        starts[1].wait(20)
    assert "exitcode  : 7" in log(folder, 1)
    ip("-n", hosts[1], "link", "set", "e0", "up")
    run = trained(hosts, folder, CUT)
    assert same_states(whole, run)
    assert rows(whole) == rows(run)
    with open(run / "metrics.csv", newline="") as f:
        assert [int(row["step"]) for row in csv.DictReader(f)] == list(range(1, 13))
    starts = json.loads((run / "provenance.json").read_text())
    assert [start["from_step"] for start in starts] == [0, 6]
