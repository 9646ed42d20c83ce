# a server of a bundle; the bundle is mounted, and read only:
#   docker build -f docker/serve.Dockerfile -t vitlab-serve .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/DIR:/bundle:ro" vitlab-serve
FROM python:3.11-bookworm AS build

ARG UV_TORCH_BACKEND=cpu
WORKDIR /vitlab

COPY . .
RUN python -m venv .installer && .installer/bin/pip install --no-cache-dir uv==0.13.8
RUN .installer/bin/uv venv .venv && .installer/bin/uv pip install -p .venv/bin/python -c requirements.txt ./runtime ".[serve]"

FROM python:3.11-slim-bookworm

COPY --from=build /vitlab/.venv /vitlab/.venv

WORKDIR /tmp
USER 65534
ENV PATH=/vitlab/.venv/bin:$PATH
ENTRYPOINT ["vitlab", "serve", "bundle=/bundle", "host=0.0.0.0"]
