"""A run is computed again from its kept states; what was altered is named, even by a forger who computes all digests
anew."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, FEW, SRC, TINY, finished, refuses

from vitlab.checkpoints.chain import CHAIN, digest_file, link_line, read_chain
from vitlab.commands import program
from vitlab.config.in_process import call
from vitlab.errors import VitlabError
from vitlab.programs import verify


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two epochs of four steps: states of the steps 4 and 8."""
    return finished(tmp_path_factory.mktemp("trained") / "run", *BARE, *FEW, "trainer.max_epochs=2").parent


@pytest.fixture
def here(own, monkeypatch):
    """A copy of the run, and commands that run in this process: a fresh one takes seconds to begin."""

    def run_command(name, words, start):
        try:
            call(name, lambda cfg: program(name, cfg), words)
        except VitlabError as error:
            if error.status != 9:
                raise
            return str(error)
        return ""

    monkeypatch.setattr(verify, "run_command", run_command)
    return own / "run"


def rewrite_state(path, change):
    state = torch.load(path, weights_only=True)
    change(state)
    path.unlink()  # a kept state is a second name of the newest one
    torch.save(state, path)


def forge(run, name, step):
    """Compute the digests of a changed state anew, and all links after it."""
    lines, link = read_chain(run / CHAIN), ""
    (run / CHAIN).unlink()
    tensors, whole = digest_file(run / "checkpoints" / name)
    with open(run / CHAIN, "w") as file:
        for line in lines:
            facts = {key: value for key, value in line.items() if key != "link"}
            if facts.get("step") == step:
                facts |= {"tensors": tensors, "file": whole}
            line = link_line(facts, link)
            link = line["link"]
            file.write(json.dumps(line) + "\n")


def improve(state):
    for name in ("head.weight", "model.head.weight"):
        if name in state["state_dict"]:
            state["state_dict"][name] += 1e-4


def test_all_stretches_are_equal_bit_for_bit(cli, here):
    done = cli("verify", "run=run", "segments=8")
    assert done.status == 0, done.err
    assert "2 of 2 stretches computed again, equal bit for bit; config, data and code are those recorded" in done.out
    assert "half was not as recorded would have passed with 0%" in done.out
    assert "Its test, scored again, gives the metrics of result.json" in done.out


def test_a_forger_who_rebuilds_all_digests_is_found_by_computing_again_alone(cli, here, monkeypatch):
    rewrite_state(here / "checkpoints" / "step_4.ckpt", improve)
    assert refuses(cli("verify", "run=run"), "step_4.ckpt holds other tensors than the run saved at step 4")
    forge(here, "step_4.ckpt", 4)
    assert verify.find_changes(verify.read_recorded(here)) == []  # all digests hold
    monkeypatch.setattr(verify, "check_test", lambda *arguments: verify.Found([]))
    done = cli("verify", "run=run", "segments=2")
    assert done.status == 9
    assert refuses(done, "steps 0 to 4, computed again, give another state_dict.")
    assert "steps 4 to 8, computed again" in done.err  # for they began with a true state


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit_metrics(run):
    rows = (run / "metrics.csv").read_text().splitlines()
    cells = rows[1].split(",")
    cells[1] = "0.125"
    (run / "metrics.csv").write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n")


def edit_result(run):
    result = json.loads((run / "result.json").read_text())
    result["test"]["test/acc1"] = 0.99
    (run / "result.json").write_text(json.dumps(result))


EDITS = {
    "seed": (lambda run: replace(run / "config.yaml", "seed: 0", "seed: 1"), "config.yaml says seed=1, and the run"),
    "config": (lambda run: replace(run / "config.yaml", "depth: ", "depth: 1"), "config.yaml says model.depth=1"),
    "metrics": (edit_metrics, "metrics.csv was edited in the row of step 4"),
    "result": (edit_result, "result.json says test/acc1 0.99, and the run ended with"),
    "weights": (
        lambda run: rewrite_state(run / "checkpoints" / "best.ckpt", improve),
        "best.ckpt holds other tensors than the run saved at step",
    ),
    "swapped": (
        lambda run: shutil.copy(run / "checkpoints" / "step_4.ckpt", run / "checkpoints" / "step_8.ckpt"),
        "step_8.ckpt holds other tensors than the run saved at step 8",
    ),
    "chain": (lambda run: replace(run / CHAIN, '"step": 4', '"step": 5'), "chain.jsonl is damaged: line"),
    "cut": (lambda run: (run / "checkpoints" / "best.ckpt").write_bytes(b"PK"), "best.ckpt is not a checkpoint"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_altered_is_named(cli, own, edit):
    act, sentence = EDITS[edit]
    act(own / "run")
    done = cli("verify", "run=run")
    assert done.status == 9, done.err
    assert refuses(done, sentence), done.err


def test_other_code_is_named_with_the_commit_of_the_run(own):
    then = {"config": "c", "code": "a"}
    (clause,) = verify.compare_facts(own / "run", then, then | {"code": "b"})
    assert clause.startswith("the code here is not the code that trained it (commit ")


def test_other_data_are_named_before_a_step_is_computed(cli, here, monkeypatch):
    monkeypatch.setattr("vitlab.programs.verify.describe_start", lambda record: {"data": "other"})
    done = cli("verify", "run=run", "stretch=[4,8]", "output=again")
    assert done.status == 9
    assert refuses(done, "the data is not the data that it was trained on")
    assert not Path("again").exists()


def test_what_cannot_be_verified_is_refused_in_one_sentence(cli, here):
    assert refuses(cli("verify"), "give one of run=RUN or chain=FILE")
    assert refuses(cli("verify", "run=run", "chain=x"), "give one of run=RUN or chain=FILE")
    assert refuses(cli("verify", "chain=nothing.jsonl"), "is no file; name a chain.jsonl")
    assert refuses(cli("verify", "run=run", "stretch=[0,5]", "output=o"), "keeps no state of step 5")
    (here / CHAIN).unlink()
    done = cli("verify", "run=run")
    assert done.status == 4
    assert refuses(done, "it was trained by an earlier version")


def rewrite_chain(run, change):
    """Change the facts of each line, and compute all links anew."""
    link, written = "", []
    for line in read_chain(run / CHAIN):
        facts = {key: value for key, value in line.items() if key != "link"}
        change(facts)
        written.append(link_line(facts, link))
        link = written[-1]["link"]
    (run / CHAIN).write_text("".join(json.dumps(line) + "\n" for line in written))


def of_another_machine(facts):
    if "machine" in facts:
        facts["machine"]["cpu"] = "Another processor"


def test_on_another_machine_what_last_digits_change_is_tolerated_and_no_more(cli, here, monkeypatch):
    rewrite_chain(here, of_another_machine)
    done = cli("verify", "run=run", "segments=2")
    assert done.status == 0, done.err
    assert "weights within 0 of their norm (0.02 is tolerated), not bit for bit, since the machine differs" in done.out
    monkeypatch.setattr(verify, "measure_spread", lambda *arguments: 0.2)
    monkeypatch.setattr(verify, "compare_states", lambda *states: verify.compare_states.found)
    for distance, tolerance, status in ((0.3, "null", 0), (0.5, "null", 9), (0.5, "0.6", 0), (0.05, "0.01", 9)):
        verify.compare_states.found = SimpleNamespace(names=["head"], distance=distance)
        done = cli("verify", "run=run", "segments=2", f"tolerance={tolerance}")
        assert done.status == status, done.err
    assert "give weights 5.0% away, and 1.0% are tolerated on another kind of machine" in done.err


@pytest.mark.slow
def test_last_digits_of_another_number_of_threads_are_measured(cli, own):
    """In bfloat16, in fresh processes."""
    run = finished(own / "half", *BARE, *FEW, "trainer.max_epochs=2", "trainer.precision=bf16-mixed")
    rewrite_chain(run, of_another_machine)
    done = cli("verify", "run=half", "segments=1", "seed=0")
    assert done.status == 0, done.err
    assert "computing them with another number of threads" in done.out


@pytest.mark.slow
def test_in_fresh_processes_a_run_and_its_chain_alone_are_equal(own):
    """Whatever the threads of this shell are: those of the run are pinned again."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    words = [word for word in (*TINY, *BARE, *FEW, "trainer.max_epochs=2") if not word.startswith("logger=")]
    for given in (["run=run", "segments=2"], [f"chain=run/{CHAIN}", f"config={' '.join(words)}"]):
        command = [sys.executable, str(Path(SRC) / "verify.py"), *given]
        ended = subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert "equal bit for bit" in ended.stdout
