"""`mq publish`: messages from arguments, stdin and files.

`publish` is the command: begin reading there. `input_stream` opens and unpacks the input, `batches` (and `csv_batches`)
turn it into tables of messages, and `read_ahead` makes the next batch in a thread while the last one is sent.
`progress` draws the bar, `publish_summary` prints the result, and `resuming` says how to go on after Ctrl-C.
"""
