"""The command line `mq`.

`main` is the program. `command_line` assembles the commands and turns every error into one line and an exit code: begin
reading there. Each folder holds the commands of one kind; a command parses its options, calls the client or the server,
and prints the result. The modules here are shared by all: `connect` (a client), `options`, `output` (tables and JSON),
`failures`, `interrupts` (Ctrl-C) and `streams` (stdin, stdout, stderr).
"""
