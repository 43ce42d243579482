"""Commands that print messages: `mq subscribe` and `mq files`.

`subscribe` turns options into a `Reading`, and `output` prints or writes what `read_topic` yields: pages of the topic
(`topic_pages`) or of a key (`key_pages`), from a start (`tail`, or a moment) to an end (`reading_end`). `lineage` and
`time_order` are pure functions of segments. Pages are printed in the forms of `message_forms`, or written by
`parquet_file`. `files` lists the Parquet files of a topic and reads them without a broker, through `segment_files`.
"""
