"""How far consumer groups are."""

from tools.dashboards.boards.parts import OF_GROUP, TOPIC_VARIABLE
from tools.dashboards.grafana import Board, Panel, Row, Variable

_GROUP = Variable("group", "Group", 'braidmq_group_lag_messages{namespace=~"$namespace",job=~"$job"}', "group")

GROUPS = Board(
    "groups",
    "Groups",
    (
        Row(
            "Lag",
            (
                Panel(
                    "Lag",
                    "short",
                    [(f"max by (topic, group) (braidmq_group_lag_messages{OF_GROUP})", "{{topic}} / {{group}}")],
                    "Messages that the group is not done with.",
                ),
                Panel(
                    "Oldest message",
                    "s",
                    [(f"max by (topic, group) (braidmq_group_lag_seconds{OF_GROUP})", "{{topic}} / {{group}}")],
                ),
                Panel(
                    "The ten that are furthest behind",
                    "short",
                    [
                        (
                            f"topk(10, max by (topic, group) (braidmq_group_lag_messages{OF_GROUP}))",
                            "{{topic}} / {{group}}",
                        )
                    ],
                    kind="bargauge",
                ),
                Panel(
                    "How fast the lag grows",
                    "short",
                    [
                        (
                            f"max by (topic, group) (deriv(braidmq_group_lag_messages{OF_GROUP}[5m]))",
                            "{{topic}} / {{group}} a second",
                        )
                    ],
                    least=None,
                ),
                Panel(
                    "Lag that counts others' messages too",
                    "none",
                    [
                        (
                            f"count(max by (topic, group) (braidmq_group_lag_is_at_most{OF_GROUP}) == 1) or vector(0)",
                            "groups",
                        )
                    ],
                    "On members of topic groups.",
                    "stat",
                ),
                Panel("Groups", "none", [("sum(braidmq_groups{S})", "groups")], kind="stat"),
            ),
        ),
        Row(
            "Consumers",
            (
                Panel(
                    "In flight",
                    "short",
                    [
                        (
                            f"max by (topic, group) (braidmq_group_in_flight_messages{OF_GROUP})",
                            "{{topic}} / {{group}}",
                        ),
                        (
                            f"max by (topic, group) (braidmq_group_delayed_messages{OF_GROUP}) > 0",
                            "{{topic}} / {{group}}, delayed",
                        ),
                    ],
                    "Handed out by a queue group, and leased; and what is delayed: not handed out, and not due yet.",
                ),
                Panel(
                    "Members",
                    "none",
                    [(f"max by (topic, group) (braidmq_group_members{OF_GROUP})", "{{topic}} / {{group}}")],
                    "Of a stream group.",
                ),
                Panel("Coordinated by", "none", [("sum by (instance) (braidmq_groups{S})", "{{instance}}")]),
            ),
        ),
        Row(
            "Not done",
            (
                Panel(
                    "Dead letters",
                    "short",
                    [
                        (
                            f"sum by (topic, group) (increase(braidmq_group_dead_messages_total{OF_GROUP}[I]))",
                            "{{topic}} / {{group}}",
                        ),
                        (
                            f"max by (topic, group) (braidmq_group_open_dead_letters{OF_GROUP})",
                            "{{topic}} / {{group}}, open",
                        ),
                    ],
                    "Given up in the interval; and those that are open: neither redriven nor discarded.",
                ),
                Panel(
                    "Expired",
                    "short",
                    [
                        (
                            f"sum by (topic, group) (increase(braidmq_group_expired_messages_total{OF_GROUP}[I]))",
                            "{{topic}} / {{group}}",
                        )
                    ],
                    "By their own time, before they were handed out.",
                ),
                Panel(
                    "Lost to retention",
                    "short",
                    [
                        (
                            f"sum by (topic, group) (increase(braidmq_group_skipped_messages_total{OF_GROUP}[I]))",
                            "{{topic}} / {{group}}",
                        )
                    ],
                    "Removed before the group got to them.",
                ),
            ),
        ),
    ),
    (TOPIC_VARIABLE, _GROUP),
)
