# The server: docs/serving.md. The work directory is mounted at /model.
FROM python:3.11-slim

WORKDIR /app
# Dependencies first: a change of the code does not install them again.
COPY LICENSE README.md constraints.txt pyproject.toml setup.py ./
COPY keras_transformer/__init__.py keras_transformer/
RUN pip install --no-cache-dir -c constraints.txt '.[serve,ctranslate2]' \
    && pip uninstall --yes keras-transformer-nmt
COPY . .
RUN pip install --no-cache-dir --no-deps . \
    && useradd --system --no-create-home server

USER server
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=5m CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["kt-serve", "--host=0.0.0.0"]
CMD ["--workdir=/model"]
