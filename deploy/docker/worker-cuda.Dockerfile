# A worker that runs torch on an NVIDIA GPU; the driver comes from the host, through its container toolkit. Build it from the root of the repository:
#   docker build -f deploy/docker/worker-cuda.Dockerfile -t fillmask-worker-cuda .
# MODEL is a folder in the build context, with its weights (model.safetensors). Or mount one at /model.
# The base image is named by its tag; to pin it, --build-arg PYTHON=python:3.12-slim@sha256:...
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/fillmask
COPY deploy/docker/requirements-build.txt deploy/docker/requirements-worker-cuda.txt ./
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: --no-deps -r requirements-build.txt \
    && /opt/build/bin/pip --python /opt/fillmask/bin/python install --require-hashes --only-binary :all: --no-deps \
        -r requirements-worker-cuda.txt
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY common common
COPY deploy deploy
COPY worker worker
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/fillmask/bin/python install --no-deps --no-index /wheels/*.whl
ARG MODEL=models/demo-zh
COPY ${MODEL} /model
RUN chmod -R a+rX /model

FROM ${PYTHON}
COPY --from=build /opt/fillmask /opt/fillmask
COPY --from=build /model /model
RUN install -d -o 10001 -g 10001 /cache
ENV PATH=/opt/fillmask/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    HF_HOME=/cache/huggingface \
    FILLMASK_MODEL=/model \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    FILLMASK_ENGINE=cuda \
    FILLMASK_CACHE_DIR=/cache/fillmask \
    FILLMASK_LOG_FORMAT=json \
    FILLMASK_METRICS_HOST=0.0.0.0 \
    FILLMASK_METRICS_PORT=9109
USER 10001:10001
# Nothing else is ever written: run it with a read-only root, and /tmp and /cache as volumes.
VOLUME ["/cache"]
EXPOSE 9109
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=300s --retries=3 \
    CMD ["python", "-m", "deploy.docker.healthcheck", "worker"]
ENTRYPOINT ["fillmask", "worker"]
