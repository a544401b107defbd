# The server: docs/serving.md. The work directory is mounted at /model.
FROM python:3.11-slim

WORKDIR /app
COPY . .
RUN pip install --no-cache-dir '.[serve]' \
    && useradd --system --no-create-home server

USER server
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=5m CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["python", "-m", "trainers.serve", "--host=0.0.0.0"]
CMD ["--workdir=/model"]
