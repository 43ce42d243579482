"""What the chart has for Prometheus and Grafana, and what its queries name."""
