"""`mq publish`: messages from arguments, stdin and files.

`publish` is the command with its options: begin reading there. It makes a `job`, which `job_run` carries out.
`input_stream` opens and unpacks the input, `batches` (and `csv_batches`) turn it into tables of messages, and
`read_ahead` makes the next batch in a thread while the last one is sent. `progress` follows the input and
`progress_bar` draws it, `publish_summary` prints the result, and `resuming` says how to go on after Ctrl-C.
"""
