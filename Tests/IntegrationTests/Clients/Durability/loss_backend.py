"""The backend of the loss test: its commands, and its own database of members and messages.

Each command is retried until it is acknowledged. A named error is an answer too, because other workers act
at the same time."""
import asyncio, collections, random, time
from event_client import Caller

# Whether channels are deleted while their clients are offline, which then learn of it when they resume. If
# False, a deletion waits until all clients are connected, and pauses disturbances until all of them have
# learnt of it.
DELETES_WHILE_CLIENTS_ARE_AWAY = True

CHANNELS = 24
# A worker's average pause between two commands, in seconds.
PAUSE = 0.2
# Users without a client, who are erased now and then.
GHOSTS = [f"ghost-{number}" for number in range(6)]
# The options of new channels, in turn.
OPTIONS = [
    {},
    {"mark_unread": "public"},
    {"status_rule": "all"},
    {"history": "hidden"},
    {},
    {"read_acks_receipts": "always"},
    {"counts_visible_to": "sender"},
    {"status_rule": 2},
]
# The changes of options.
CHANGES = [
    {"read_events": False},
    {"read_events": True},
    {"delivery_events": False},
    {"delivery_events": True},
    {"mark_unread": "public"},
    {"mark_unread": "private"},
    {"status_rule": "all"},
    {"status_rule": "any"},
]


class Backend:
    """The backend's own database: members, messages, and the channels of each worker."""

    def __init__(self, specification):
        self.gateways, self.seed = specification["gateways"], specification["seed"]
        self.server, self.tokens = specification["server"], specification["users"]
        self.is_control = specification["way"] == "control"
        self.tally = collections.Counter()
        self.caller = Caller(self.gateways, self.generator("the backend"), self.tally)
        self.users = sorted(self.tokens)
        self.cids = [f"{'team' if number % 6 == 5 else 'messaging'}:room-{number}" for number in range(CHANNELS)]
        self.members = {cid: set() for cid in self.cids}
        # By cid and id: each requested registration, with its seq once acknowledged.
        self.messages = {cid: {} for cid in self.cids}
        self.acting = collections.Counter()
        self.closing = set()
        self.next_message = 0
        self.is_over = False
        self.clients = []
        # The failure of a background task.
        self.failure = None
        # The number of tasks that pause disturbances, and whether a process is down.
        self.calm = 0
        self.is_down = False

    def generator(self, name):
        """A random generator that depends only on the seed and the name."""
        return random.Random(f"{self.seed} {name}")

    async def ask(self, method, path, body=None, token=None):
        """Sends a command. A named error is an answer too: other workers act at the same time."""
        status, answer = await self.caller.ask(method, path, token or self.server, body)
        if status >= 500 or status in (400, 401, 405):
            raise SystemExit(f"fault: {method} {path} {body} answered {status} {answer}")
        self.tally["commands refused" if status >= 400 else "commands"] += 1
        return status, answer

    async def create(self, cid, generated):
        members = generated.sample(self.users, generated.randrange(4, 16))
        options = OPTIONS[self.cids.index(cid) % len(OPTIONS)]
        status, _ = await self.ask("PUT", f"/v1/channels/{cid}", {"members": members, "options": options})
        if status in (200, 201):
            self.members[cid] |= set(members)

    async def register(self, cid, messages):
        for message in messages:
            self.messages[cid][message["id"]] = dict(message, seq=None)
        body = {"messages": [dict(message, cid=cid) for message in messages]}
        _, answer = await self.ask("POST", "/v1/messages", body)
        for message, result in zip(messages, answer["results"]):
            if result["ok"]:
                self.messages[cid][message["id"]]["seq"] = result["message"]["seq"]
            elif result["code"] in ("store_unavailable", "store_busy", "outcome_unknown"):
                await asyncio.sleep(0.1)
                return await self.register(cid, messages)

    def new_message(self, **fields):
        self.next_message += 1
        return dict({"id": f"m-{self.next_message}"}, **fields)

    async def until(self, clients, holds, limit):
        """Waits until the condition holds for all clients; returns those for which it fails within the
        limit, in seconds."""
        deadline = time.monotonic() + limit
        while True:
            left = [client for client in clients if not holds(client)]
            if self.failure is not None:
                raise self.failure
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.05)

    async def everybody_is_there(self):
        """Waits until no process is down and every stream is live; returns False on a timeout."""
        deadline = time.monotonic() + 20
        while self.is_down and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return not await self.until(self.clients, lambda client: client.is_live and not client.is_asking, 20)


class Worker:
    """A task that sends one command after another, each acknowledged before the next."""

    def __init__(self, backend, number):
        self.backend, self.random = backend, backend.generator(f"worker {number}")

    async def live(self):
        acts = [
            (20, self.send),
            (24, self.read),
            (10, self.deliver),
            (8, self.unread),
            (6, self.acknowledge),
            (4, self.hide),
            (8, self.change_members),
            (4, self.delete_message),
            (1, self.truncate),
            (3, self.change_options),
            (1, self.change_type),
            (1, self.read_all),
            (0.4, self.flood),
            (0.6, self.delete_channel),
            (0.3, self.erase),
        ]
        weights, acts = zip(*acts)
        while not self.backend.is_over:
            act = self.random.choices(acts, weights)[0]
            cid = self.random.choice(self.backend.cids)
            if cid not in self.backend.closing:
                self.backend.acting[cid] += 1
                try:
                    await act(cid)
                finally:
                    self.backend.acting[cid] -= 1
            await asyncio.sleep(self.random.uniform(0, 2 * PAUSE))

    def member(self, cid):
        return self.random.choice(sorted(self.backend.members[cid] - set(GHOSTS)) or self.backend.users)

    def message(self, cid):
        known = [
            id for id, message in self.backend.messages[cid].items() if message["seq"] and "parent_id" not in message
        ]
        return self.random.choice(known[-20:]) if known else None

    def path(self, cid, rest=""):
        return f"/v1/channels/{cid}{rest}"

    async def send(self, cid):
        choice = self.random.random()
        parent = self.message(cid) if choice < 0.12 else None
        fields = {"user_id": self.member(cid)}
        if parent:
            fields["parent_id"] = parent
        elif choice < 0.2:
            fields["silent"] = True
        elif choice < 0.4:
            fields["receipt"] = True
        await self.backend.register(
            cid, [self.backend.new_message(**fields) for _ in range(self.random.choice([1, 1, 1, 3]))]
        )

    async def flood(self, _):
        """Sends so many messages that a slow reader gets a reset."""
        cid = self.backend.cids[0]
        sender = self.backend.users[0]
        if len(self.backend.messages[cid]) > 1_500:
            await self.backend.ask("POST", self.path(cid, "/truncate"), {})
            self.backend.messages[cid] = {
                id: message for id, message in list(self.backend.messages[cid].items())[-400:]
            }
        await self.backend.register(cid, [self.backend.new_message(user_id=sender) for _ in range(400)])
        self.backend.tally["floods"] += 1

    async def read(self, cid):
        user, message = self.member(cid), self.message(cid)
        body = {"message_id": message} if message and self.random.random() < 0.6 else {}
        await self.backend.ask("POST", self.path(cid, "/read"), body, self.backend.tokens[user])

    async def read_all(self, _):
        user = self.random.choice(self.backend.users)
        await self.backend.ask("POST", "/v1/channels/read", {"all": True}, self.backend.tokens[user])

    async def deliver(self, cid):
        user, message = self.member(cid), self.message(cid)
        if message:
            await self.backend.ask(
                "POST",
                "/v1/channels/delivered",
                {"latest_delivered_messages": [{"cid": cid, "id": message}]},
                self.backend.tokens[user],
            )

    async def unread(self, cid):
        user, message = self.member(cid), self.message(cid)
        if message:
            token = self.backend.tokens[user]
            await self.backend.ask("POST", self.path(cid, "/unread"), {"message_id": message}, token)

    async def acknowledge(self, cid):
        user = self.member(cid)
        asked = [id for id, message in self.backend.messages[cid].items() if message.get("receipt")]
        if asked:
            ids = self.random.sample(asked[-10:], min(3, len(asked[-10:])))
            await self.backend.ask("POST", self.path(cid, "/receipts"), {"message_ids": ids}, self.backend.tokens[user])

    async def hide(self, _):
        user, kind = self.random.choice(self.backend.users), self.random.choice(["read_receipts", "delivery_receipts"])
        body = {"privacy_settings": {kind: {"enabled": self.random.random() < 0.5}}}
        await self.backend.ask("PUT", f"/v1/users/{user}", body, self.backend.tokens[user])
        self.backend.tally["privacy toggles"] += 1

    async def change_members(self, cid):
        members = self.backend.members[cid]
        leaving = (
            self.random.sample(sorted(members), min(len(members), self.random.choice([0, 1, 1, 2])))
            if len(members) > 4
            else []
        )
        joining = self.random.sample(self.backend.users + GHOSTS, self.random.choice([0, 1, 1, 2]))
        status, _ = await self.backend.ask("POST", self.path(cid, "/members"), {"add": joining, "remove": leaving})
        if status == 200:
            self.backend.members[cid] = members - set(leaving) | set(joining)
            self.backend.tally["joins"] += len(joining)
            self.backend.tally["leaves"] += len(leaving)

    async def delete_message(self, cid):
        if message := self.message(cid):
            await self.backend.ask("DELETE", self.path(cid, f"/messages/{message}"))
            self.backend.tally["messages deleted"] += 1

    async def truncate(self, cid):
        if message := self.message(cid):
            await self.backend.ask("POST", self.path(cid, "/truncate"), {"before": message})
            self.backend.tally["truncations"] += 1

    async def change_options(self, cid):
        await self.backend.ask("PUT", self.path(cid), {"options": self.random.choice(CHANGES)})

    async def change_type(self, _):
        await self.backend.ask("PUT", "/v1/channel-types/team", self.random.choice(CHANGES))

    async def erase(self, _):
        ghost = self.random.choice(GHOSTS)
        await self.backend.ask("DELETE", f"/v1/users/{ghost}")
        for members in self.backend.members.values():
            members.discard(ghost)
        self.backend.tally["users erased"] += 1

    async def delete_channel(self, cid):
        backend = self.backend
        if backend.closing or cid == backend.cids[0]:
            return
        backend.closing.add(cid)
        try:
            while backend.acting[cid] > 1:
                await asyncio.sleep(0.02)
            if DELETES_WHILE_CLIENTS_ARE_AWAY:
                await self.delete(cid)
            else:
                backend.calm += 1
                try:
                    if not await backend.everybody_is_there():
                        return
                    having = [client for client in backend.clients if cid in client.picture.channels]
                    before = {client: client.gone[cid] for client in having}
                    await self.delete(cid)
                    await backend.until(having, lambda client: client.gone[cid] > before[client], 20)
                finally:
                    backend.calm -= 1
            await asyncio.sleep(self.random.uniform(0, 0.3))
            await backend.create(cid, self.random)
        finally:
            backend.closing.discard(cid)

    async def delete(self, cid):
        await self.backend.ask("DELETE", self.path(cid))
        self.backend.members[cid], self.backend.messages[cid] = set(), {}
        self.backend.tally["channels deleted"] += 1


class Story:
    """The control's history: events of every kind for all users, each kind last of its object. A client that
    ignores one kind ends with a wrong picture."""

    HERE, GONE = "messaging:control", "messaging:gone"

    def __init__(self, backend):
        self.backend = backend

    async def begin(self):
        for cid in (self.HERE, self.GONE):
            await self.backend.ask("PUT", f"/v1/channels/{cid}", {"members": self.backend.users})
            self.backend.members[cid], self.backend.messages[cid] = set(self.backend.users), {}

    async def play(self, marks_unread):
        """`marks_unread`: the users who mark unread at the end, where the others mark read."""
        backend, users, path = self.backend, self.backend.users, f"/v1/channels/{self.HERE}"
        early = [backend.new_message(user_id=users[0]) for _ in range(3)]
        theirs = [backend.new_message(user_id=user, receipt=True) for user in users]
        await backend.register(self.HERE, early + theirs)
        newest = theirs[-1]["id"]
        for user in users:
            token = backend.tokens[user]
            await backend.ask("POST", path + "/receipts", {"message_ids": [message["id"] for message in theirs]}, token)
            if user == users[2]:
                delivered = {"latest_delivered_messages": [{"cid": self.HERE, "id": newest}]}
                await backend.ask("POST", "/v1/channels/delivered", delivered, token)
            else:
                await backend.ask("POST", path + "/read", {}, token)
            if user in marks_unread:
                await backend.ask("POST", path + "/unread", {"message_id": theirs[5]["id"]}, token)
        hides = {"privacy_settings": {"read_receipts": {"enabled": False}}}
        await backend.ask("PUT", f"/v1/users/{users[1]}", hides, backend.tokens[users[1]])
        await backend.register(self.HERE, [backend.new_message(user_id=users[0])])
        await backend.ask("DELETE", f"{path}/messages/{theirs[4]['id']}")
        await backend.ask("POST", path + "/truncate", {"before": theirs[0]["id"]})
        await backend.ask("POST", path + "/members", {"add": GHOSTS[:1], "remove": users[-1:]})
        await backend.ask("PUT", path, {"options": {"receipt_ttl": 86_400}})
        await backend.ask("DELETE", f"/v1/channels/{self.GONE}")
