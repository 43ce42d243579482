"""All commands of `mq`: the place of each, and the first line of its help."""

from mq.cli.lazy_group import Group, Place

CONTEXT = "context"
COMMANDS: dict[str, Place | Group] = {
    "serve": Place(
        "mq.cli.server.serve:serve", "Run a broker: alone or in a cluster, on a local directory or an object store."
    ),
    "local": Place(
        "mq.cli.server.local:local",
        "Run a whole cluster on this machine: ZooKeeper, a store and brokers. Ctrl-C ends it.",
    ),
    "config": Group(
        "Show the settings of a broker.",
        {
            "show": Place(
                "mq.cli.server.config:show",
                "Show each setting of `mq serve` with the same options: what is in force, and where it came from.",
            ),
        },
    ),
    "healthcheck": Place(
        "mq.cli.server.healthcheck:healthcheck",
        "Ask the broker that runs here with the same options as `mq serve` whether it is alive.",
    ),
    "publish": Place(
        "mq.cli.publishing.publish:publish", "Publish messages: arguments, lines of stdin, or files row by row."
    ),
    "subscribe": Place(
        "mq.cli.reading.subscribe:subscribe", "Print the messages of a topic, in order for each key, and wait for more."
    ),
    "work": Place(
        "mq.cli.consuming.work:work",
        "Run a command for each message of a topic. It is done if the command exits with 0; else it comes again.",
    ),
    "dead-letters": Place(
        "mq.cli.consuming.dead_letters:dead_letters",
        "Show the dead letters of a group that were neither redriven nor discarded: why, and what they were.",
    ),
    "group": Group(
        "Create, list, describe, reset and delete consumer groups; redrive their dead letters.",
        {
            "create": Place(
                "mq.cli.consuming.group:create", "Create a consumer group. If it exists, change the given settings."
            ),
            "list": Place(
                "mq.cli.consuming.group:list_groups",
                "List the consumer groups of a topic, and how far each is behind.",
            ),
            "describe": Place(
                "mq.cli.consuming.group:describe",
                "Show how far a group is behind, what has become of messages, and its settings.",
            ),
            "reset": Place(
                "mq.cli.consuming.group:reset",
                "Have a group begin anew, further back or further on. What was claimed before cannot be acked any "
                "more.",
            ),
            "redrive": Place(
                "mq.cli.consuming.group:redrive",
                "Publish the dead letters of a group to their topic again, once each.",
            ),
            "delete": Place(
                "mq.cli.consuming.group:delete",
                "Delete a consumer group, with its progress. Messages stay in their topics.",
            ),
        },
    ),
    "bench": Place(
        "mq.cli.diagnosis.bench:bench", "Measure a broker: publish messages until they are stored, then read them back."
    ),
    "doctor": Place(
        "mq.cli.diagnosis.doctor:doctor",
        "Check this machine, and a broker, a store or both. The exit code is 0 only if nothing failed.",
    ),
    "verify": Place(
        "mq.cli.diagnosis.verify:verify",
        "Check every byte of topics on their store, with or without brokers running. Changes nothing.",
    ),
    "topic": Group(
        "Create, configure, list, describe, repair and delete topics; split and merge their segments.",
        {
            "create": Place(
                "mq.cli.topics.topic:create",
                "Create a topic. If it exists, change the given settings; see also `mq topic config`.",
            ),
            "config": Place("mq.cli.topics.topic:configure", "Change settings of a topic, or show all settings."),
            "list": Place("mq.cli.topics.topic:list_topics", "List the topics."),
            "describe": Place(
                "mq.cli.topics.topic:describe",
                "Show the segments of a topic, their traffic and lineage, and the settings that differ from the "
                "default.",
            ),
            "history": Place(
                "mq.cli.topics.topic_history:history",
                "Show every segment a topic ever had: why and when it was opened and sealed, and how much it held.",
            ),
            "repair": Place(
                "mq.cli.topics.repair:repair",
                "Tell which messages of a topic are lost, and give them up with --accept-loss, so that readers pass "
                "them by.",
            ),
            "split": Place(
                "mq.cli.topics.split_and_merge:split", "Split an open segment of a topic. Publishers and readers go on."
            ),
            "merge": Place(
                "mq.cli.topics.split_and_merge:merge",
                "Merge two neighbouring open segments of a topic. Publishers and readers go on.",
            ),
            "delete": Place("mq.cli.topics.topic:delete", "Delete a topic and all its messages."),
        },
    ),
    "topic-group": Group(
        "Create, list, describe and delete topic groups: topics that share their segments and one order.",
        {
            "create": Place(
                "mq.cli.topics.topic_group:create",
                "Create a topic group of these topics. If it exists, add topics to it and change the given settings.",
            ),
            "list": Place("mq.cli.topics.topic_group:list_groups", "List the topic groups."),
            "describe": Place(
                "mq.cli.topics.topic_group:describe", "Show the topics of a group and the segments that they share."
            ),
            "delete": Place(
                "mq.cli.topics.topic_group:delete", "Delete a topic group with all its topics and their messages."
            ),
        },
    ),
    "files": Group(
        "List and read a topic's Parquet files.",
        {
            "ls": Place(
                "mq.cli.reading.files:list_files", "List the live files. Together they hold each message once."
            ),
            "cat": Place("mq.cli.reading.files:cat", "Print the messages in the files as JSON, one per line."),
            "sql": Place(
                "mq.cli.reading.files:sql",
                "Print a query for DuckDB, Spark, Polars or Athena that has each message of the topic once.",
            ),
        },
    ),
    "cluster": Group(
        "Show the cluster; drain brokers and take them back.",
        {
            "status": Place(
                "mq.cli.server.cluster:status",
                "Show the brokers, how many segments each owns, the leader, and transitions in progress.",
            ),
            "drain": Place(
                "mq.cli.server.cluster:drain",
                "Make a broker hand over all its segments, and wait until it has. It keeps running and may then be "
                "stopped.",
            ),
            "undrain": Place("mq.cli.server.cluster:undrain", "Let a drained broker own segments again."),
        },
    ),
    CONTEXT: Group(
        "Name brokers, with the files that it takes to talk to them, and choose which commands go by.",
        {
            "add": Place("mq.cli.contexts.commands:add", "Add a context, or replace the one of that name."),
            "use": Place("mq.cli.contexts.commands:use", "Have commands go by this context from now on."),
            "list": Place("mq.cli.contexts.commands:list_contexts", "List the contexts, and which one is in use."),
            "show": Place("mq.cli.contexts.commands:show", "Show what a context has: by default that which is in use."),
            "remove": Place("mq.cli.contexts.commands:remove", "Remove a context. The files that it names stay."),
        },
    ),
    "token": Group(
        "Make, inspect and revoke tokens, and the keys that sign them.",
        {
            "create": Place(
                "mq.cli.tokens.token:create",
                "Sign a token with the newest key, and print it. Brokers check it without looking anything up.",
            ),
            "create-static": Place(
                "mq.cli.tokens.token:create_static",
                "Make a random token, print it, and add its hash to a file. Brokers take the file within a second.",
            ),
            "inspect": Place(
                "mq.cli.tokens.token:inspect",
                "Show what a signed token says: whose it is, what it allows, until when. With --public-keys, check it "
                "as well.",
            ),
            "revoke": Place(
                "mq.cli.tokens.revoke:revoke",
                "Have all brokers refuse a signed token, within a second, by the policy of the cluster. What it has "
                "open ends.",
            ),
            "rotate-key": Place(
                "mq.cli.tokens.signing:rotate_key",
                "Make a new key that signs tokens from now on; the first time, make the files.",
            ),
            "public-keys": Place(
                "mq.cli.tokens.signing:public_keys",
                "Print the public keys, which is what brokers need (mq serve --token-keys).",
            ),
        },
    ),
    "peer-keys": Group(
        "Make and rotate the keys by which brokers prove to each other who they are.",
        {
            "add": Place(
                "mq.cli.server.peer_keys:add",
                "Add a new key, which signs nothing yet. The first time, make the file with a key that signs.",
            ),
            "use": Place(
                "mq.cli.server.peer_keys:use",
                "Have the newest key sign. Do it once all brokers have the file with that key.",
            ),
            "drop": Place(
                "mq.cli.server.peer_keys:drop",
                "Remove all keys but the one that signs. Do it once it signs at all brokers.",
            ),
            "list": Place(
                "mq.cli.server.peer_keys:list_keys",
                "List the ids of the keys, the one that signs first. Secrets are not shown.",
            ),
        },
    ),
    "policy": Group(
        "Show and change the policy: what principals may do besides, what is revoked, how much each may take.",
        {
            "show": Place(
                "mq.cli.policy.policy:show",
                "Show the policy as TOML: grants, revocations and quotas. Change it, and give it to mq policy apply.",
            ),
            "apply": Place(
                "mq.cli.policy.policy:apply",
                "Put what the file says into the policy, and tell what has changed by that. Sections that it lacks "
                "stay.",
            ),
        },
    ),
    "pipeline": Place("mq.cli.pipeline:app", "Run jobs on a topic's files, on Spark."),
}
"""In the order of the help. A test compares the summaries with the commands."""
TALK_TO_NONE = frozenset({"serve", "local", "config", "healthcheck", "peer-keys", CONTEXT})
"""Commands that ignore the context: they ask no broker."""
