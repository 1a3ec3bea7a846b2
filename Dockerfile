# What trains and serves on SageMaker, on Kubernetes or alone:
#   docker build --tag manyhands .
#   docker run manyhands train | serve | any command of manyhands with its arguments
# Crews of several machines need PyTorch: --build-arg EXTRAS=s3,serve,torch. SageMaker runs as root: --build-arg USER=root.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
# The linker of gcc joins the kernels to libraries, which the wheel then holds.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE constraints.txt ./
COPY tools/build_backend.py tools/compile_kernels.py tools/
COPY src src
# What is needed to build comes from the same list of versions; older and newer pips read it from different variables.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt
ARG PIP_EXTRA_INDEX_URL
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
ARG EXTRAS=s3,serve
RUN python -m venv --without-pip /opt/manyhands \
    && pip --python /opt/manyhands/bin/python install --no-cache-dir "$(echo /wheels/manyhands-*.whl)[${EXTRAS}]"

FROM python:${PYTHON}-slim
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true
COPY --from=build /opt/manyhands /opt/manyhands
RUN useradd --create-home --uid 10001 manyhands \
    && mkdir -p /opt/ml/input/data /opt/ml/model /opt/ml/output /opt/ml/checkpoints \
    && chown -R manyhands:manyhands /opt/ml
ENV PATH=/opt/manyhands/bin:$PATH PYTHONUNBUFFERED=1
ARG USER=manyhands
USER ${USER}
WORKDIR /opt/ml
EXPOSE 8080
ENTRYPOINT ["manyhands-container"]
CMD ["--help"]
