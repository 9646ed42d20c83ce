# vitlab and all that its tests need, from requirements with hashes: docker build -t vitlab . && docker run vitlab train
FROM python:3.11-bookworm

WORKDIR /vitlab

# the libraries first: a layer that changes with them alone
COPY Makefile requirements.txt ./
RUN make .venv/libraries

COPY . .
RUN make setup

ENV PATH=/vitlab/.venv/bin:$PATH
ENTRYPOINT ["vitlab"]
CMD ["--help"]
