"""What requests and answers look like: bodies of JSON as checked models, and messages as JSON, Arrow and events.

`formats` has every media type of messages with its functions. `render` writes messages as JSON, `arrow_stream` as
Arrow, `stream_forms` those of a subscription; `rendering` does that within the memory of an answer. `json_form` checks
a JSON body by a model, `shallow_json` parses a long one in steps, and `group_bodies` has the bodies about groups.
Nothing here knows how a request came.
"""
