# The image of every node, for CPUs, CUDA or TPUs. From this directory:
#   docker build --build-arg ACCELERATOR=cuda --tag launchpod .
#   docker run --rm --tty --gpus=all --volume="$PWD/runs:/launchpod/runs" launchpod --accelerator=gpu
# It contains what .dockerignore does not exclude, so your own files under this directory too.

# Reverb's server, as `make` installs it.
FROM python:3.11-slim AS replay
WORKDIR /launchpod
COPY requirements-replay.txt ./
# By its full name: in the image below, `python` is another.
RUN python3.11 -m venv --without-pip .venv-replay
RUN pip --python .venv-replay/bin/python install --no-cache-dir --no-deps --require-hashes -r requirements-replay.txt
RUN cd .venv-replay/lib/python3.11/site-packages/tensorflow && \
  find . ! -name libtensorflow_framework.so.2 ! -type d -delete && find . -type d -empty -delete

FROM python:3.12-slim
# cpu, cuda or tpu, or several of them.
ARG ACCELERATOR=cpu
WORKDIR /launchpod
COPY --from=replay /usr/local/bin/python3.11 /usr/local/bin/
COPY --from=replay /usr/local/lib/libpython3.11.so.1.0 /usr/local/lib/
COPY --from=replay /usr/local/lib/python3.11 /usr/local/lib/python3.11
COPY --from=replay /launchpod/.venv-replay .venv-replay
COPY requirements*.txt ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt
# Launchpad's own files, without its compiled Courier.
RUN pip install --no-cache-dir --target /tmp/launchpad --python-version 3.10 --only-binary :all: --no-deps \
  --require-hashes -r requirements-launchpad.txt && \
  mv /tmp/launchpad/launchpad /usr/local/lib/python3.12/site-packages && rm -r /tmp/launchpad
RUN for kind in $ACCELERATOR; do test $kind = cpu || \
  pip install --no-cache-dir --no-deps --require-hashes -r requirements-$kind.txt || exit 1; done
# What `make add` has added here. If it does not fit the accelerator's packages, the build fails.
RUN test ! -e requirements-user.txt || uv pip install --system --no-cache --no-deps -r requirements-user.txt \
  $(for kind in $ACCELERATOR; do test $kind = cpu || echo -c requirements-$kind.txt; done)
COPY . .
RUN chmod -R a+rX . && mkdir -p runs && chown 1000:1000 runs
# SkyPilot needs 0, because it installs what it needs in the container.
ARG USER=1000:1000
USER $USER
ENTRYPOINT ["python", "launch.py"]
