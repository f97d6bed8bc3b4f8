# The image of every node, for CPUs, CUDA or TPUs. From this directory:
#   docker build --build-arg ACCELERATOR=cuda --tag launchpod .
#   docker run --rm --tty --gpus=all --volume="$PWD/runs:/launchpod/runs" launchpod --accelerator=gpu
# It contains what .dockerignore does not exclude, so your own files under this directory too.
FROM python:3.10-slim
# cpu, cuda or tpu, or several of them.
ARG ACCELERATOR=cpu
WORKDIR /launchpod
COPY requirements*.txt ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt
RUN for kind in $ACCELERATOR; do test $kind = cpu || \
  pip install --no-cache-dir --no-deps --require-hashes -r requirements-$kind.txt || exit 1; done
# What `make add` has added here. If it does not fit the accelerator's packages, the build fails.
RUN test ! -e requirements-user.txt || uv pip install --system --no-cache --no-deps -r requirements-user.txt \
  $(for kind in $ACCELERATOR; do test $kind = cpu || echo -c requirements-$kind.txt; done)
COPY . .
RUN chmod -R a+rX . && mkdir -p runs && chown 1000:1000 runs
USER 1000:1000
ENTRYPOINT ["python", "launch.py"]
