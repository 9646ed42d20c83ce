"""Dockerfile, devcontainer, workflows and issue forms: what they do is done here, what checks them finds nothing."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import BARE, TINY

from vitlab.config.home import ROOT

DOCKERFILE = ROOT / "Dockerfile"
DEVCONTAINER = ROOT / ".devcontainer" / "devcontainer.json"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
TARGETS = set(re.findall(r"^([a-z./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def checked(tool, *words):
    """What a checker says."""
    program = Path(sys.executable).with_name(tool)
    done = subprocess.run([program, *map(str, words)], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def steps():
    """Lines of shell that the Dockerfile, the devcontainer and the workflows run."""
    yield from (line for kind, line in instructions() if kind == "RUN")
    yield json.loads(DEVCONTAINER.read_text())["postCreateCommand"]
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)


def instructions(stage=None):
    """Keywords and arguments of the Dockerfile, of all its stages or of one."""
    whole = DOCKERFILE.read_text(encoding="utf-8")
    text = whole if stage is None else re.search(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM|\Z)", whole, re.M | re.S)[1]
    return re.findall(r"^([A-Z]+) (.*)$", text, re.M)


def test_hadolint_finds_nothing():
    assert checked("hadolint", DOCKERFILE, ROOT / "docker" / "serve.Dockerfile") == (0, "")


def test_actionlint_finds_nothing():
    assert checked("actionlint", *WORKFLOWS) == (0, "")


def test_what_they_make_are_targets_and_what_they_test_is_there():
    shell = "\n".join(steps())
    made = set(re.findall(r"\bmake ([a-z./-]+)", shell))
    assert {"lint", "test", "docs", "setup", ".venv/libraries"} <= made <= TARGETS
    files = re.findall(r"\btests/\w+\.py", shell)
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_they_name_no_machine_and_no_registry():
    for path in (DOCKERFILE, DEVCONTAINER, *WORKFLOWS, *FORMS):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"://|index-url|/home/|/tmp/", text), path
        assert socket.gethostname() not in text


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_is_one(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert content.keys() <= {"name", "description", "labels", "body", "title", "assignees"}
    ids = [field["id"] for field in content["body"]]
    assert len(set(ids)) == len(ids) > 2
    for field in content["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"]["label"]
        assert ("options" in field["attributes"]) == (field["type"] in ("dropdown", "checkboxes"))
    assert any(field.get("validations", {}).get("required") for field in content["body"])


@pytest.fixture
def built(tmp_path):
    """built(stage, folder): what a stage of the Dockerfile copies and runs, one after the other, in an empty folder;
    returns a function that runs a line there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(line, where=tmp_path):
        done = subprocess.run(["sh", "-c", line], cwd=where, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make(stage, folder):
        folder.mkdir()
        for kind, words in instructions(stage):
            if kind == "COPY":
                *sources, target = words.split()
                copy(sources, folder / target)
            elif kind == "RUN":
                run(words, folder)
        return run

    return make


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_what_the_dockerfile_runs_makes_an_environment(built, tmp_path):
    """Its stage for development; then what the devcontainer does in a checkout beside it."""
    folder, workspace = tmp_path / "vitlab", tmp_path / "workspace"
    run = built("dev", folder)
    assert "vitlab 0." in run(".venv/bin/vitlab --version", folder)
    copy(["."], workspace)
    command = json.loads(DEVCONTAINER.read_text())["postCreateCommand"]
    run(command.replace("/vitlab/", f"{folder}/"), workspace)
    where = run(".venv/bin/python -c 'import vitlab; print(vitlab.__file__)'", workspace)
    assert Path(where.strip()).is_relative_to(workspace)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_image_for_use_trains_and_holds_no_development_packages(built, tmp_path):
    folder, work = tmp_path / "vitlab", tmp_path / "work"
    run = built("build", folder)
    work.mkdir()
    shutil.move(folder / "src", folder / "elsewhere")  # the image holds the environment alone
    run(f"{folder}/.venv/bin/vitlab train {shlex.join([*TINY, *BARE])} trainer.max_epochs=1", work)
    assert list(work.glob("runs/*/*/result.json"))
    installed = run(f"{folder}/.installer/bin/uv pip list -p {folder}/.venv/bin/python")
    assert "timm" in installed
    assert not re.search(r"^(pytest|ruff|mypy|transformers|hypothesis)\b", installed, re.M)


def copy(sources, target):
    """What git knows of the checkout, as a clone of it has."""
    names = subprocess.run(["git", "ls-files", "-z", *sources], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, names.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def test_the_description_of_the_package_stands_by_itself():
    """It is read where no file of the repository is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["authors"] == [{"name": author["name"]} for author in cited["authors"]]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert named == {"3.11", "3.12", "3.13"}


def test_windows_is_refused_in_one_sentence():
    code = "import sys; sys.platform = 'win32'; import vitlab"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: vitlab runs on Linux and macOS; on Windows use it inside WSL 2"
    )
