"""The wheel in an environment of its own, where the checkout cannot be imported."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from vitlab.config.home import ROOT


def install_wheel(home):
    """Build vitlab's wheel, install it below ``home``, and return the environment variables that find it first."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    venv.create(home / "venv", symlinks=True)
    scheme = {"base": str(home / "venv"), "platbase": str(home / "venv")}
    places = sysconfig.get_paths("venv", vars=scheme)
    others = sysconfig.get_paths()["purelib"]  # the libraries, whose own .pth files, vitlab's among them, are not read
    Path(places["purelib"], "libraries.pth").write_text(f"{others}\n")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PATH"] = f"{places['scripts']}{os.pathsep}{environment['PATH']}"
    subprocess.run([home / "venv" / "bin" / "python", *install], env=environment, check=True)
    return environment
