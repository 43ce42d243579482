"""Every route of a broker: what it needs, and how its requests are served, charged, recorded and traced.

The routers, the guard, the audit trail, quotas, traces, the access log and OpenAPI use this table. A request is looked
up once (`match_of`). A path that is not in the table needs the right to manage the cluster, and is then not found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from starlette.types import Scope

from mq.http.web_pages import SAFE_METHODS
from mq.security.grants import Action
from mq.security.needs import Effect, Need, Subject

MATCH = "braidmq.route"
"""The key in a request's scope."""
METHODS = ("DELETE", "GET", "POST", "PUT")
Turn = Literal["pages", "streams", "others"]
"""The line in which requests wait for a turn on the event loop."""
Step = Literal["publish", "receive", "subscribe"]
"""The name of the work in a trace."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a template of paths, and everything that depends on them.

    `operation` is the id in OpenAPI, and so the name of a generated client's method; without one it is left out there.

    `named` is the name in the template whose value is the topic. `changes` is the effect, if the method does not say
    it. `is_endless`: the answer goes on until either side ends it. `creates_topic`: a request may create one.
    `is_small_step`: the audit trail has the requests before and after it. `has_payloads`: its bodies are payloads, and
    do not count in the topic's storage.
    """

    method: str
    template: str
    action: Action
    subject: Subject
    operation: str = ""
    named: str = "topic"
    changes: Effect | None = None
    turn: Turn = "others"
    step: Step | None = None
    is_endless: bool = False
    is_probe: bool = False
    creates_topic: bool = False
    is_small_step: bool = False
    has_payloads: bool = False
    gives_messages: bool = False
    effect: Effect = field(init=False)
    _places: tuple[int, ...] = field(init=False, repr=False)
    _pattern: str = field(init=False, repr=False)
    _topic_at: int | None = field(init=False, repr=False)
    _group_at: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        words = self.template.split("/")
        names = [word.strip("{}") for word in words if word.startswith("{")]
        about_topic = self.subject in ("topic", "group")
        derived = {
            "effect": self.changes or ("none" if self.method in SAFE_METHODS else "change"),
            "_places": tuple(index for index, word in enumerate(words) if word.startswith("{")),
            "_pattern": "/".join("%s" if word.startswith("{") else word for word in words),
            "_topic_at": names.index(self.named) if about_topic else None,
            "_group_at": names.index("group") if self.subject == "group" else None,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def of(self, *values: str) -> "RouteMatch":
        """A request with these values, in the order of the template."""
        return RouteMatch(self.method, self._pattern % values, self, self._need(values), values)

    def match(self, method: str, path: str, words: Sequence[str]) -> "RouteMatch":
        """A request for that path, split into words."""
        values = tuple([words[place] for place in self._places])
        return RouteMatch(method, path, self, self._need(values), values)

    def _need(self, values: Sequence[str]) -> Need:
        topic = "" if self._topic_at is None else values[self._topic_at]
        group = "" if self._group_at is None else values[self._group_at]
        return Need(self.action, self.subject, topic, group, self.effect)


@dataclass(slots=True)
class RouteMatch:
    """A request, by its method and path. `values` are the parts of the path for the names in the template."""

    method: str
    path: str
    route: Route | None
    need: Need
    values: tuple[str, ...] = ()

    def is_for(self, route: Route) -> bool:
        """Whether that route serves it: each name in the path has a value."""
        return self.route is route and all(self.values)

    @property
    def gives_data(self) -> bool:
        """Whether its answer has data that may be read only while that is allowed. Endless ones check it themselves."""
        if self.route is not None and (self.route.is_endless or self.route.gives_messages):
            return self.route.gives_messages
        return self.need.effect == "none"

    @property
    def is_endless(self) -> bool:
        """Whether the answer goes on until either side ends it."""
        return self.route is not None and self.route.is_endless

    @property
    def creates_topic(self) -> bool:
        """Whether it may create a topic or a topic group."""
        return self.route is not None and self.route.creates_topic

    @property
    def is_recorded(self) -> bool:
        """Whether it changes anything besides messages and consumers' progress on them."""
        need = self.need
        is_small = self.route is not None and self.route.is_small_step
        return need.effect != "none" and need.action in ("manage", "load") and not is_small

    @property
    def text(self) -> str:
        """The method and path for the audit trail, without the id of an upload: a holder of the id may write."""
        words = self.path.split("/", _UPLOAD_WORDS)
        if words[:3] == ["", "v1", "topics"] and words[4:5] == ["uploads"] and len(words) > _UPLOAD_WORDS:
            words[_UPLOAD_WORDS] = "(id)"
        return f"{self.method} {'/'.join(words)}"


_UPLOAD_WORDS = 5
"""So many words stand before the id of an upload."""
ROUTES: list[Route] = []


def _add(route: Route) -> Route:
    ROUTES.append(route)
    return route


_T = "/v1/topics/{topic}"
_S = _T + "/segments/{segment}"
_L = _T + "/loads/{load}"
_G = _T + "/groups/{group}"
_M = _G + "/members/{member_id}"
_TG = "/v1/topic-groups/{group}"

LIVEZ = _add(Route("GET", "/livez", "observe", "anybody", "getLivez", is_probe=True))
HEALTHZ = _add(Route("GET", "/healthz", "observe", "anybody", "getHealthz", is_probe=True))
READYZ = _add(Route("GET", "/readyz", "observe", "cluster", "getReadyz", is_probe=True))
METRICS = _add(Route("GET", "/metrics", "observe", "cluster", "getMetrics"))
DOCS = _add(Route("GET", "/docs", "observe", "anybody"))
DOCS_FILE = _add(Route("GET", "/docs/{name}", "observe", "anybody"))
OPENAPI = _add(Route("GET", "/openapi.json", "observe", "anybody"))

CLUSTER = _add(Route("GET", "/v1/cluster", "observe", "anybody", "getCluster"))
VERIFY_CLUSTER = _add(Route("GET", "/v1/cluster/verification", "observe", "cluster", "verifyCluster"))
GET_POLICY = _add(Route("GET", "/v1/cluster/policy", "manage", "cluster", "getPolicy"))
PUT_POLICY = _add(Route("PUT", "/v1/cluster/policy", "manage", "cluster", "putPolicy"))
DRAIN = _add(Route("POST", "/v1/cluster/brokers/{name}/drain", "manage", "cluster", "drainBroker"))
END_DRAIN = _add(Route("DELETE", "/v1/cluster/brokers/{name}/drain", "manage", "cluster", "undrainBroker"))

LIST_TOPICS = _add(Route("GET", "/v1/topics", "observe", "anybody", "listTopics"))
GET_TOPIC = _add(Route("GET", _T, "observe", "topic", "getTopic"))
PUT_TOPIC = _add(Route("PUT", _T, "manage", "topic", "putTopic", creates_topic=True))
DELETE_TOPIC = _add(Route("DELETE", _T, "manage", "topic", "deleteTopic"))
GET_ROUTE = _add(Route("GET", _T + "/route", "observe", "topic", "getTopicRoute"))
HISTORY = _add(Route("GET", _T + "/history", "observe", "topic", "getTopicHistory"))
VERIFY_TOPIC = _add(Route("GET", _T + "/verification", "observe", "topic", "verifyTopic"))
# These change no message. Brokers do the same by themselves, and an operator may not want to wait for that.
UPKEEP = _add(Route("POST", _T + "/upkeep", "manage", "topic", "runUpkeep", changes="upkeep"))
SPLIT = _add(Route("POST", _S + "/split", "manage", "topic", "splitSegment", changes="upkeep"))
MERGE = _add(Route("POST", _S + "/merge", "manage", "topic", "mergeSegments", changes="upkeep"))

# A topic group is a topic too, under its own name.
LIST_TOPIC_GROUPS = _add(Route("GET", "/v1/topic-groups", "observe", "anybody", "listTopicGroups"))
GET_TOPIC_GROUP = _add(Route("GET", _TG, "observe", "topic", "getTopicGroup", named="group"))
PUT_TOPIC_GROUP = _add(Route("PUT", _TG, "manage", "topic", "putTopicGroup", named="group", creates_topic=True))
DELETE_TOPIC_GROUP = _add(Route("DELETE", _TG, "manage", "topic", "deleteTopicGroup", named="group"))

PUBLISH = _add(Route("POST", _T + "/messages", "publish", "topic", "publish", step="publish"))
BROWSE = _add(Route("GET", _T + "/messages", "read", "topic", "browseMessages", turn="pages", step="receive"))
GET_MESSAGE = _add(
    Route("GET", _T + "/messages/{message_id}", "read", "topic", "getMessage", turn="pages", step="receive")
)
GET_PAYLOAD = _add(
    Route("GET", _T + "/messages/{message_id}/payload", "read", "topic", "getPayload", turn="pages", step="receive")
)
READ_SEGMENT = _add(Route("GET", _S + "/messages", "read", "topic", "readSegment", turn="pages", step="receive"))
SEGMENT_FILES = _add(Route("GET", _S + "/files", "read", "topic", "listSegmentFiles"))
FILES = _add(Route("GET", _T + "/files", "read", "topic", "listFiles"))
POSITIONS = _add(Route("GET", _T + "/positions", "read", "topic", "getPositions"))
SUBSCRIBE = _add(
    Route("GET", _T + "/subscribe", "read", "topic", "subscribe", turn="streams", step="subscribe", is_endless=True)
)
# A socket's data is checked frame by frame. Browsers let pages of any site open one, and have no other check. So it is
# no safe request.
SOCKET = _add(Route("GET", _T + "/socket", "observe", "topic", "openSocket", is_endless=True, changes="change"))
SUBSCRIBE_TICKET = _add(Route("POST", _T + "/subscribe/tickets", "read", "topic", "createSubscribeTicket"))
SOCKET_TICKET = _add(Route("POST", _T + "/socket/tickets", "observe", "topic", "createSocketTicket"))

BEGIN_UPLOAD = _add(Route("POST", _T + "/uploads", "publish", "topic", "createUpload", has_payloads=True))
UPLOAD = _add(Route("PUT", _T + "/uploads/{upload}", "publish", "topic", "uploadPayload", has_payloads=True))

BEGIN_LOAD = _add(Route("POST", _T + "/loads", "load", "topic", "createLoad"))
LOAD_URLS = _add(Route("POST", _L + "/urls", "load", "topic", "createLoadUrls", is_small_step=True))
GET_LOAD = _add(Route("GET", _L, "load", "topic", "getLoad"))
COMMIT_LOAD = _add(Route("POST", _L, "load", "topic", "commitLoad"))
ABORT_LOAD = _add(Route("DELETE", _L, "load", "topic", "abandonLoad"))
LOAD_FILE = _add(
    Route("PUT", _L + "/files/{segment}/{base_offset}", "load", "topic", "uploadLoadFile", is_small_step=True)
)

LIST_GROUPS = _add(Route("GET", _T + "/groups", "observe", "topic", "listGroups"))
GET_GROUP = _add(Route("GET", _G, "observe", "group", "getGroup"))
PUT_GROUP = _add(Route("PUT", _G, "manage", "group", "putGroup"))
DELETE_GROUP = _add(Route("DELETE", _G, "manage", "group", "deleteGroup"))
RESET = _add(Route("POST", _G + "/reset", "manage", "group", "resetGroup"))
REDRIVE = _add(Route("POST", _G + "/redrive", "manage", "group", "redrive"))
GROUP_MESSAGES = _add(Route("GET", _G + "/messages", "consume", "group", "listGroupMessages"))
CLAIM = _add(Route("POST", _G + "/claims", "consume", "group", "claim", gives_messages=True))
ACK = _add(Route("POST", _G + "/acks", "consume", "group", "ack"))
RELEASE = _add(Route("POST", _G + "/releases", "consume", "group", "release"))
EXTEND = _add(Route("POST", _G + "/extensions", "consume", "group", "extend"))
COMMIT = _add(Route("POST", _G + "/commits", "consume", "group", "commit"))
JOIN = _add(Route("POST", _G + "/members", "consume", "group", "joinGroup"))
HEARTBEAT = _add(Route("POST", _M + "/heartbeats", "consume", "group", "heartbeat"))
LEAVE = _add(Route("DELETE", _M, "consume", "group", "leaveGroup"))


@dataclass(slots=True)
class _Node:
    """The routes with one beginning: the next node for each word, or for any word, and the routes that end here."""

    words: dict[str, "_Node"] = field(default_factory=dict)
    any_word: "_Node | None" = None
    ends: dict[str, Route] = field(default_factory=dict)


def match_route(method: str, path: str) -> RouteMatch:
    """The meaning of a request of that method for that path. Results are not kept: clients choose the paths."""
    words = path.split("/", _MOST_WORDS)
    node = _node_of(words)
    route = None if node is None else node.ends.get("GET" if method == "HEAD" else method)
    if route is None:
        effect: Effect = "none" if method in SAFE_METHODS else "change"
        return RouteMatch(method, path, None, Need("manage", "cluster", effect=effect))
    return route.match(method, path, words)


def match_of(scope: Scope) -> RouteMatch:
    """The meaning of a request. The first caller looks it up."""
    match: RouteMatch | None = scope.get(MATCH)
    if match is None:
        match = scope[MATCH] = match_route(scope.get("method", "GET"), scope["path"])
    return match


def methods_of(path: str) -> list[str]:
    """The methods that a path takes."""
    node = _node_of(path.split("/", _MOST_WORDS))
    return [] if node is None else [method for method in METHODS if method in node.ends]


def _node_of(words: Sequence[str]) -> _Node | None:
    node: _Node | None = _ROOT
    for word in words:
        if node is None:
            return None
        node = node.words.get(word) or node.any_word
    return node


def _tree() -> _Node:
    root = _Node()
    for route in ROUTES:
        node = root
        for word in route.template.split("/"):
            if word.startswith("{"):
                node.any_word = node = node.any_word or _Node()
            else:
                node = node.words.setdefault(word, _Node())
        node.ends[route.method] = route
    return root


_MOST_WORDS = max(route.template.count("/") for route in ROUTES) + 1
_ROOT = _tree()
