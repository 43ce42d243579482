"""The layer over object storage: stores, segment files, the segment log, the topic catalogue, uploads.

Everything durable goes through this package, and nothing here knows of brokers, leaders or HTTP.
"""
