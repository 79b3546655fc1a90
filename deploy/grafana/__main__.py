"""`python -m deploy.grafana`: write the JSON of every dashboard and docs/dashboards.md, from the code."""

from deploy.grafana.written import write

if __name__ == "__main__":
    write()
