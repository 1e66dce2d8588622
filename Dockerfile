# trainlab in a container: `docker build -t trainlab .`
# On x86 the wheels of PyTorch that pip finds come with CUDA; for a small image without it name PyTorch's own
# index of CPU wheels: `--build-arg TORCH_INDEX=URL`.
FROM python:3.11-slim-bookworm

# make for `make lab`; a C++ compiler for the compiled updates of engine tuned.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /trainlab
ARG TORCH_INDEX=""
COPY constraints.txt pyproject.toml README.md LICENSE Makefile ./
COPY src src
RUN python -m venv .venv && touch .venv/.made \
    && .venv/bin/pip install --quiet --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} --editable '.[page]' \
    && touch .venv/.lab
ENV PATH=/trainlab/.venv/bin:$PATH \
    TRAINLAB_CACHE=/trainlab/cache
ENTRYPOINT ["trainlab"]
CMD ["--help"]
