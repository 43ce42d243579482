"""Generates the dashboards of the chart, `helm/braidmq/dashboards/*.json`.

    python -m tools.dashboards            # write them
    python -m tools.dashboards --check    # exit with 1 if the files are not what this program makes

`boards` has what each shows, `grafana` how Grafana writes that down.
"""
