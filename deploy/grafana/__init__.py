"""Grafana's dashboards as code: what each panel asks of ClickHouse and how it is drawn. `make dashboards` writes them.

    one module a dashboard -> panels (what is asked, how it is shown) -> grafana-foundation-sdk -> dashboards/*.json

`provisioning/` tells Grafana of them and of the data source. docs/dashboards.md says what each panel means.
"""
