"""Commands that print messages: `mq subscribe` and `mq files`.

`subscribe` reads through a broker; `present_end` tells it where `--until-end` stops. `files` lists the Parquet files of
a topic and reads them without a broker, through `segment_files`. Both print in the forms of `message_forms`.
"""
