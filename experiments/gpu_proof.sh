#!/usr/bin/env bash
# Prove on a machine with one GPU, within ten minutes and without a network, what no CPU can show.
#
#   experiments/gpu_proof.sh OUTPUT [--cifar10 DIR] [--only NAME,...] [--minutes 9.5] [--carried DIR]
#   experiments/gpu_proof.sh OUTPUT --dry       every step in miniature on a CPU, in about two minutes
#   experiments/gpu_proof.sh --wheels [DIR] [PYTHON]   where there is a network: the packages that a GPU machine may
#                                               lack, for its version of Python (3.12)
#
# Each step has its own time limit and says PASS, FAIL or SKIP; a failure does not stop the others. The folder OUTPUT
# gets gpu_proof.md, gpu_proof.json, log.txt and the trace of a few training steps. The exit status is 0 when nothing
# failed. DIR of --cifar10 has train/<class>/*.jpg and test/<class>/*.jpg. --wheels fills DIR, or dist/wheels; what lies
# there and is not installed is used from there for the time of the proof (--carried).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3

# pure Python all of them, so that one wheel suits every machine; torchao, with its own hashes, is beside them
packages=(hydra-core omegaconf antlr4-python3-runtime pytorch-lightning torchmetrics lightning-utilities timm
    vit-pytorch einops rich filelock fsspec pydantic annotated-types typing-inspection pytest pytest-timeout iniconfig
    pluggy)
compiled=(pydantic-core) # for one version of Python each

# The lines of requirements.txt, versions and hashes, about these packages.
locked() {
    local pattern
    pattern=$(IFS='|' && echo "$*")
    awk -v wanted="^($pattern)==" '$0 ~ wanted { keep = 1 } keep { print } !/\\$/ { keep = 0 }' "$root/requirements.txt"
}

if [ "${1:-}" = --wheels ]; then
    folder=${2:-$root/dist/wheels}
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${3:-3.12}" --implementation cp \
        --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --dest "$folder" -r <(locked "${compiled[@]}")
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" -r <(locked "${packages[@]}") -r "$root/experiments/gpu/torchao.txt"
    ls "$folder"
else
    exec "$python" "$root/experiments/gpu/proof.py" "$@"
fi
