# vitlab for use, without what only its tests need; the folder where you type this is the working folder inside:
#   docker build -t vitlab .                 # --build-arg UV_TORCH_BACKEND=cpu for a torch without CUDA, 5 GB smaller
#   docker run --rm -v "$PWD:/workspace" vitlab train
#   docker run --rm -v "$PWD:/workspace" --gpus all --shm-size 8g vitlab train trainer=gpu    # workers share memory
# and for development, with all that its tests need: docker build --target dev -t vitlab-dev .
FROM python:3.11-bookworm AS dev

WORKDIR /vitlab

# the libraries first: a layer that changes with them alone
COPY Makefile requirements.txt ./
RUN make .venv/libraries

COPY . .
RUN make setup

ENV PATH=/vitlab/.venv/bin:$PATH
ENTRYPOINT ["vitlab"]
CMD ["--help"]

FROM python:3.11-bookworm AS build

ARG UV_TORCH_BACKEND
WORKDIR /vitlab

COPY . .
RUN python -m venv .installer && .installer/bin/pip install --no-cache-dir uv==0.13.8
RUN .installer/bin/uv venv .venv && .installer/bin/uv pip install -p .venv/bin/python -c requirements.txt ".[hub,fast]"

FROM python:3.11-slim-bookworm

COPY --from=build /vitlab/.venv /vitlab/.venv

WORKDIR /workspace
ENV PATH=/vitlab/.venv/bin:$PATH
ENTRYPOINT ["vitlab"]
CMD ["--help"]
