"""One client of the loss test: its stream, the disturbances of the stream, and the picture that it builds
from events."""
import asyncio, collections, time
from event_client import Blocks, Caller, Connection, Lost
from event_picture import Channel, Message, Own, Picture, Row

# One kind for each client of the control.
KINDS = [
    "message.new",
    "message.deleted",
    "channel.truncated",
    "member.added",
    "member.removed",
    "message.status",
    "message.receipt",
    "message.read",
    "message.delivered",
    "read_state.changed",
    "notification.mark_read",
    "notification.mark_unread",
    "notification.totals",
    "channel.updated",
    "channel.deleted",
]


class Client:
    """One device, or one server, with its stream and its picture."""

    def __init__(self, backend, number, viewer, token, query, channels=None):
        self.backend, self.number, self.viewer, self.token = backend, number, viewer, token
        self.random = backend.generator(f"client {number}")
        self.caller = Caller(backend.gateways, backend.generator(f"the gateways of client {number}"), backend.tally)
        self.query, self.channels = query, channels
        self.picture = Picture(viewer)
        self.window = self.random.choice([65_535, 65_535, 65_535, 8_192, 1_024, 120])
        self.last = None
        self.connection = None
        # The time of the last id since it connected: no earlier event is missing.
        self.through = 0
        self.blocks = Blocks()
        self.cut_after = None
        self.is_begun = False
        self.refusal = None
        self.end = asyncio.Event()
        # Events that arrive during a query of everything, or of a channel: they are applied after the answer.
        self.waiting = None
        self.waiting_channels = {}
        # The number of queries of everything.
        self.turn = 0
        self.tasks = set()
        self.gone = collections.Counter()
        self.drops = KINDS[number % len(KINDS)] if backend.is_control and viewer is not None else None

    # The stream.

    async def live(self):
        while True:
            self.end.clear()
            self.is_begun, self.through, self.blocks, self.refusal = False, 0, Blocks(), None
            try:
                port = self.random.choice(self.backend.gateways)
                self.connection = await Connection.to(port, self.window)
                query = dict(self.query)
                if self.channels is not None:
                    query["channels"] = ",".join(sorted(self.channels))
                path = "/v1/events?" + "&".join(f"{name}={value}" for name, value in query.items())
                self.connection.open(path, self.token, [("last-event-id", self.last)] if self.last else [], self)
                self.backend.tally["streams opened"] += 1
                self.backend.tally["resumes"] += self.last is not None
                await self.end.wait()
                self.connection.cut()
            except Lost:
                self.backend.tally["streams refused"] += 1
            if self.refusal in (403, 404) and self.channels is not None:
                # The user has left a channel that the stream names.
                mine = await self.query_channels()
                self.channels = self.channels & set(mine) or set(mine) or None
                self.last = None
            elif self.refusal not in (None, 200, 503):
                raise SystemExit(f"fault: {self} was answered {self.refusal}")
            long = self.random.random() < 0.15 and not self.backend.is_over
            await asyncio.sleep(self.random.uniform(2, 6) if long else self.random.uniform(0, 0.6))

    def began(self, status, headers):
        self.refusal = status
        self.is_begun = status == 200

    def data(self, data):
        if not self.is_begun:
            return
        if self.cut_after is not None:
            # The cut is usually in the middle of an event; later data is dropped.
            data, self.cut_after, self.is_begun = data[: self.cut_after], None, False
            self.connection.cut()
        for event, id in self.blocks.feed(data):
            if self.last is None and id is not None:
                # The stream begins with events from now on: the state before them has to be queried.
                self.query_all()
            if event is not None:
                self.take(event)
            if id is not None:
                self.last = id
                self.through = int(id.split("-")[1])

    def ended(self):
        self.is_begun, self.through = False, 0
        self.end.set()

    @property
    def is_live(self):
        return self.is_begun and self.through > 0

    def __str__(self):
        channels = "all" if self.channels is None else len(self.channels)
        return f"client {self.number} ({self.viewer or 'a server'}, {self.query}, {channels} channels)"

    # Disturbances.

    def cut(self):
        if self.connection is None or not self.connection.is_open:
            return
        if self.random.random() < 0.5:
            self.cut_after = self.random.randrange(200)
        else:
            self.connection.cut()

    async def stop_reading(self):
        connection, whole = self.connection, self.random.random() < 0.5
        if connection is None or not connection.is_open:
            return
        self.backend.tally["slow readers"] += 1
        connection.pause() if whole else connection.take(False)
        deadline = time.monotonic() + self.random.uniform(1, 7)
        while time.monotonic() < deadline and not self.backend.calm:
            await asyncio.sleep(0.1)
        connection.resume() if whole else connection.take(True)

    # Events.

    def take(self, event):
        self.backend.tally["events"] += 1
        self.backend.tally[event["type"]] += 1
        if event["type"] == "channel.deleted":
            self.gone[event["cid"]] += 1
        if event["type"] == self.drops:
            self.backend.tally["ignored " + self.drops] += 1
            return
        if event["type"] == "stream.reset":
            return self.query_all()
        if self.waiting is not None:
            self.waiting.append(event)
        elif event.get("cid") in self.waiting_channels:
            self.waiting_channels[event["cid"]].append(event)
        else:
            self.apply(event)

    def apply(self, event):
        if event["type"] == "channel.deleted" and self.viewer is None:
            self.picture.channels.pop(event["cid"], None)
        if (cid := self.picture.apply(event)) is not None:
            self.waiting_channels[cid] = []
            self.start(self.join(cid))

    def start(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.ended_task)

    def ended_task(self, task):
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.backend.failure = self.backend.failure or task.exception()

    @property
    def is_asking(self):
        return bool(self.tasks)

    async def join(self, cid):
        turn = self.turn
        channel = await self.query_channel(cid)
        if self.turn != turn:
            return
        if channel is None:
            self.picture.channels.pop(cid, None)
        else:
            self.picture.channels[cid] = channel
        waiting = self.waiting_channels.pop(cid)
        while waiting:
            event = waiting.pop(0)
            self.apply(event)
            if cid in self.waiting_channels:
                self.waiting_channels[cid] += waiting
                return

    def query_all(self):
        """Queries everything again; events in the meantime are applied afterwards."""
        for task in list(self.tasks):
            task.cancel()
        # A task may still end if its answer has already arrived.
        self.turn += 1
        self.waiting, self.waiting_channels = [], {}
        self.start(self.install())

    async def install(self):
        turn = self.turn
        picture = await self.queried_picture()
        if self.turn != turn:
            return
        unknown = self.picture.unknown
        self.picture, self.picture.unknown = picture, unknown
        waiting, self.waiting = self.waiting, None
        for event in waiting:
            if event.get("cid") in self.waiting_channels:
                self.waiting_channels[event["cid"]].append(event)
            else:
                self.apply(event)

    # Queries.

    async def ask(self, method, path, body=None, token=None):
        if token is None and "user_id" in self.query:
            path += ("&" if "?" in path else "?") + "user_id=" + self.viewer
        return await self.caller.ask(method, path, token or self.token, body)

    async def queried_picture(self):
        """A picture built from queries alone."""
        picture = Picture(self.viewer)
        for cid in await self.query_channels():
            if self.channels is None or cid in self.channels:
                channel = await self.query_channel(cid)
                if channel is not None:
                    picture.channels[cid] = channel
        if "totals" in self.query:
            _, answer = await self.ask("GET", f"/v1/users/{self.viewer}/unread")
            picture.totals = tuple(answer[name] for name in ("total_unread_count", "unread_channels", "unread_threads"))
        return picture

    async def query_channels(self):
        if self.viewer is None:
            return sorted(self.channels)
        found, cursor = [], ""
        while True:
            _, page = await self.caller.ask("GET", f"/v1/users/{self.viewer}/channels?limit=10{cursor}", self.token)
            found += [entry["cid"] for entry in page["channels"]]
            if "next" not in page:
                return found
            cursor = "&cursor=" + page["next"]

    async def query_channel(self, cid):
        """Returns None where the channel does not exist, or the user may not see it."""
        status, answer = await self.ask("GET", f"/v1/channels/{cid}", token=self.backend.server)
        if status != 200:
            return None
        options = answer["channel"]["options"]
        channel = Channel(options, base=answer["channel"].get("newest_message", {}).get("seq", 0))
        if self.viewer is not None:
            channel.own = Own()
        cursor = ""
        while True:
            status, page = await self.ask("GET", f"/v1/channels/{cid}/read-state?limit=100{cursor}")
            if status != 200:
                return None
            for row in page["read"]:
                user = row["user"]["id"]
                channel.rows[user] = Row(row["last_read_seq"], row["last_delivered_seq"])
                if user == self.viewer:
                    channel.join = row["joined_seq"] if options["history"] == "hidden" else 0
                    channel.own = Own(
                        row["last_read_seq"],
                        row.get("last_read_message_id", ""),
                        row["unread_epoch"],
                        row["unread_messages"],
                        row.get("first_unread_message_id"),
                    )
            if "next" not in page:
                break
            cursor = "&cursor=" + page["next"]
        known = dict(self.backend.messages[cid])
        ids = list(known)
        for first in range(0, len(ids), 100):
            status, answer = await self.ask(
                "POST", f"/v1/channels/{cid}/receipts/query", {"message_ids": ids[first : first + 100]}
            )
            if status != 200:
                return None
            for found in answer["statuses"]:
                self.take_status(channel, known[found["message_id"]], found)
        return channel

    def take_status(self, channel, message, found):
        seq = found.get("seq", message["seq"])
        if seq is None or found.get("code") == "message_not_found":
            return
        taken = Message(
            message["id"],
            seq,
            message["user_id"],
            message.get("silent", False),
            message.get("receipt", False),
            message.get("parent_id", ""),
        )
        if "code" in found:
            taken.is_deleted = True
        else:
            taken.status, taken.receipt = found["status"], found["receipt_status"]
            taken.counts = (found["read_count"], found["delivered_count"], found["member_count"])
            if not taken.parent:
                channel.base = max(channel.base, seq)
        channel.messages[taken.id] = taken
