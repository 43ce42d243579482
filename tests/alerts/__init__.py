"""Every alert fires by a real fault, and goes with it; every panel shows data (`make alerts`).

A real Prometheus scrapes real brokers. While an alert fires, the commands and queries of its page are run.
"""
