"""What each dashboard shows."""

from tools.dashboards.boards.broker import BROKER
from tools.dashboards.boards.groups import GROUPS
from tools.dashboards.boards.overview import OVERVIEW
from tools.dashboards.boards.store import STORE
from tools.dashboards.boards.topic import TOPIC

BOARDS = (OVERVIEW, TOPIC, BROKER, GROUPS, STORE)
