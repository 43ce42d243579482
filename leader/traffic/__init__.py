"""How busy segments are: messages and bytes a second.

Owners keep `traffic_averages` and report them. The leader keeps all reports in `traffic_table`, whose columns are laid
out in `segment_rows`. `broker_traffic` sums them up by broker.
"""
