"""Publishing: from messages and tables to acknowledged positions.

Begin with `publisher.py` (single calls) and `producer.py` (batches; `segment_senders.py` decides which sender takes
what). Both hand requests to `delivery.py`, which repeats each until its outcome is known. `encoding/` turns messages
and tables into Arrow. It builds on `transport` and `cluster`.
"""
