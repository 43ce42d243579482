"""Traces of publishes and reads, sent to an OpenTelemetry collector by OTLP.

The broker uses `tracer`; the one there traces nothing, and costs nothing. `open_tracer` decides once, at the start, and
is the only module that imports OpenTelemetry's SDK (through `otel_tracer` and `told_exporter`). `attributes` lists the
names of all facts. The modules in which steps happen report them by `filer.tracing`.
"""
