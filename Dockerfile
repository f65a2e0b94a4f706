# The sidecar: a wheel of this tree and pinned packages in a venv, nothing of what built them.
# The GPU exporter and the load generator of docker-compose.yml run in it too.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /opt/extproc && /opt/extproc/bin/pip install --quiet --disable-pip-version-check "hatchling>=1.26"
# Packages before sources: a changed line of ours installs nothing anew.
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --constraint constraints.txt --requirement requirements.txt \
 && find /opt/venv -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -r {} +
COPY README.md ./
COPY envoy envoy
COPY extproc extproc
RUN /opt/extproc/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile /wheels/*.whl \
 && rm -r /opt/venv/lib/python3*/site-packages/pip /opt/venv/lib/python3*/site-packages/setuptools

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/venv /opt/venv
# Envoy's image runs as 101 too: sockets are for one user alone. A new named volume takes its owner from these folders.
RUN groupadd --system --gid 101 extproc && useradd --system --uid 101 --gid 101 --no-create-home extproc \
 && install -d -o 101 -g 101 -m 0750 /run/extproc /run/redis-auth /var/lib/extproc /var/lib/redis
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 101:101
WORKDIR /var/lib/extproc
ENTRYPOINT ["extproc"]
CMD ["serve", "--state-dir", "/var/lib/extproc"]
