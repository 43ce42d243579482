"""The subscriptions of a socket. Each is named by the id of the request that began it."""

import asyncio
from typing import Any

import orjson

from filer.errors import InvalidInput
from filer.keys import check_name
from mq.base.errors import Conflict, NotFound
from mq.forms.json_form import checked_body
from mq.http.reply import cut_off
from mq.http.routes import SOCKET
from mq.http.sockets.group_calls import problem_document
from mq.http.sockets.member_delivery import MemberDelivery
from mq.http.sockets.queue_delivery import QueueDelivery
from mq.http.sockets.requests import Id, Request
from mq.http.sockets.subscription import Outlet, SubscribeBody, Subscription
from mq.http.sockets.topic_delivery import TopicDelivery
from mq.service.groups.group_service import GroupService

MOST_SUBSCRIPTIONS = 16
_CREDIT = 'credit is a whole number of messages from 1 on: {"credit": 500}'


class _Running:
    """A subscription with its task, and the reason if it is stopped."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.reason = ""
        self.task: asyncio.Task[None]


class Subscriptions:
    """The subscriptions of one socket."""

    def __init__(self, outlet: Outlet, topic: str, service: GroupService, consumer: str) -> None:
        self._outlet, self._topic, self._service, self._consumer = outlet, topic, service, consumer
        self._running: dict[Id, _Running] = {}

    def subscribe(self, request: Request) -> None:
        """Begin a subscription, which answers the request. Raises what `problem_of` knows."""
        assert request.id is not None
        if request.id in self._running:
            raise Conflict("subscription-exists", f"id {request.id!r} is that of a subscription of this socket")
        if len(self._running) >= MOST_SUBSCRIPTIONS:
            raise Conflict(
                "too-many-subscriptions",
                f"a socket has {MOST_SUBSCRIPTIONS} subscriptions at most: end one of them first",
            )
        running = _Running(self._made(request.id, body_of(request)))
        self._running[request.id] = running
        running.task = asyncio.create_task(self._run(running), name="subscription of a socket")

    def _made(self, id_: Id, asked: SubscribeBody) -> Subscription:
        if asked.mode is None:
            return TopicDelivery(self._outlet, id_, self._topic, asked)
        if asked.mode == "queue":
            return QueueDelivery(self._outlet, id_, self._topic, asked, self._service, self._consumer)
        return MemberDelivery(self._outlet, id_, self._topic, asked, self._service, self._consumer)

    async def _run(self, running: _Running) -> None:
        subscription, answers = running.subscription, self._outlet.answers
        has_begun = False
        try:
            about = await subscription.start()
            has_begun = True
            answers.ok(subscription.id, orjson.dumps({"subscription": subscription.id, **about}))
            end = await subscription.run()
        except asyncio.CancelledError:
            end = subscription.stopped(running.reason or "closed")
        except Exception as error:
            end = {"end": "refused", "problem": problem_document(error, SOCKET.of(self._topic).path)}
        finally:
            self._running.pop(subscription.id, None)
        if has_begun:
            subscription.tell(end)
            await subscription.release()
        elif "problem" in end:
            answers.refused(subscription.id, orjson.dumps(end["problem"]))
        else:
            answers.problem(subscription.id, cut_off())

    def give_credit(self, request: Request) -> None:
        """Give a subscription more credit. Raises `InvalidInput` and `NotFound`."""
        more = request.asked
        if not isinstance(more, int) or isinstance(more, bool) or more < 1:
            raise InvalidInput(_CREDIT)
        credit = self.named(request.fields.get("subscription")).credit
        credit.give(more)
        self._outlet.answers.ok(request.id, orjson.dumps({"credit": credit.left}))

    def unsubscribe(self, request: Request) -> None:
        """End a subscription. Its end says where to go on. Raises `NotFound`."""
        running = self._running[self.named(request.asked).id]
        running.reason = "unsubscribed"
        running.task.cancel()
        self._outlet.answers.ok(request.id, orjson.dumps({"subscription": running.subscription.id}))

    def named(self, id_: Any) -> Subscription:
        """The subscription of that id; without an id, the only one. Raises `InvalidInput` and `NotFound`."""
        if id_ is None and len(self._running) == 1:
            return next(iter(self._running.values())).subscription
        if id_ is None:
            raise InvalidInput(
                f"this socket has {len(self._running)} subscriptions: name one by the id of its request, "
                'such as "subscription": 1'
            )
        if not isinstance(id_, int | str) or (running := self._running.get(id_)) is None:
            raise NotFound("subscription", f"this socket has no subscription {id_!r:.80} (any more)")
        return running.subscription

    def of_groups(self) -> list[Subscription]:
        """The subscriptions to groups."""
        return [each.subscription for each in self._running.values() if each.subscription.group is not None]

    async def stop(self, reason: str) -> None:
        """End all of them for that reason."""
        running = list(self._running.values())
        for each in running:
            each.reason = reason
            each.task.cancel()
        await asyncio.gather(*(each.task for each in running), return_exceptions=True)


def body_of(request: Request) -> SubscribeBody:
    """The subscription that a request asks for. Raises `InvalidInput`."""
    if not isinstance(request.asked, dict):
        raise InvalidInput(f"subscribe is an object such as {SubscribeBody.EXAMPLE}")
    asked = checked_body(request.asked, SubscribeBody)
    asked.check()
    if asked.group is not None:
        check_name(asked.group, what="group")
    return asked
