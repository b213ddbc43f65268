"""A push worker's day.

Messages are registered and pushed to offline users, with tickets and badge counts fetched in batches.
Devices and workers acknowledge them late, twice and out of order, from several processes and over two
gateways. Meanwhile members leave and return, messages are deleted, and a channel is deleted and recreated.

In the end all positions, counts and badges must follow from the acks that were answered ok. Then the model
forgets one of those acks, and the comparison must find it.

usage: push_day.py SPECIFICATION

SPECIFICATION is a JSON file: `gateways` and `admins` (ports), `certificates` (of the gateways with TLS, else
empty), `seed`, `server` (a token), and the numbers of `users`, `channels` and `messages`. The last line on
standard output begins with `ok`.
"""
import collections, datetime, json, random, sys, time
from push_backend import MESSAGES, TICKETS, Backend, Fault, Process, parts
from push_model import Model, differences

HOURS = 5
# Channel sizes (low, high) with their weights.
SIZES = [(2, 3, 35), (3, 6, 35), (7, 15, 20), (16, 40, 8), (80, 150, 2)]
# Ways of sending an ack: process, by ticket or by name, weight.
WAYS = [
    ("devices", "ticket", 45),
    ("ndjson", "name", 25),
    ("ndjson", "ticket", 10),
    ("frames", "ticket", 10),
    ("frames", "name", 10),
]
PROVIDERS = ["apns", "fcm", "webpush", "huawei"]


def milliseconds():
    return int(time.time() * 1_000)


def rfc3339(milliseconds):
    at = datetime.datetime.fromtimestamp(milliseconds / 1_000, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1_000:03}Z"


class Day:
    def __init__(self, specification):
        self.specification = specification
        self.random = random.Random(f"{specification['seed']} the day")
        self.backend, self.model, self.tally = Backend(specification), Model(), collections.Counter()
        gateways = list(zip(specification["gateways"], specification["certificates"]))
        self.processes = {
            way: [Process(way, *gateway) for gateway in gateways] for way in ("devices", "ndjson", "frames")
        }
        self.users = [f"user-{number}" for number in range(specification["users"])]
        self.offline = set(self.random.sample(self.users, len(self.users) // 2))
        self.next_message = 0
        # The counts that the gateways must report: (by, whether the ack was answered ok).
        self.counted = collections.Counter()
        # By hour: the acks due then.
        self.due = [[] for _ in range(HOURS + 1)]
        self.left = []
        # For acks in flight: the allowed answers of each, and the acks of each channel.
        self.possible, self.under_way = {}, {}

    def live(self):
        self.open_channels()
        for hour in range(HOURS):
            messages = self.register(self.specification["messages"] // HOURS)
            self.use_apps()
            self.push(hour, messages)
            self.acknowledge(self.due[hour], lambda acks: self.disturb(hour, acks))
        self.acknowledge(self.due[HOURS], lambda acks: self.use_apps())

    # Activity.

    def open_channels(self):
        lows, highs, weights = zip(*SIZES)
        for number in range(self.specification["channels"]):
            size = self.random.choices(range(len(SIZES)), weights)[0]
            size = min(self.random.randint(lows[size], highs[size]), len(self.users) // 2)
            self.model.create(f"messaging:room-{number}", self.random.sample(self.users, size))
        self.cids = sorted(self.model.rooms)
        self.backend.request_all([self.opening(cid, list(self.model.rooms[cid].rows)) for cid in self.cids])
        # Small channels get more messages.
        self.weights = [len(self.model.rooms[cid].rows) ** -0.7 for cid in self.cids]

    @staticmethod
    def opening(cid, members):
        return "PUT", f"/v1/channels/{cid}", {"members": members}, 201

    def register(self, count):
        """Registers messages, a thousand a call; returns (cid, id, sender, seq) of each."""
        new, found = [], []
        for cid in self.random.choices(self.cids, self.weights, k=count):
            self.next_message += 1
            new.append(
                (cid, f"m-{self.next_message}", self.random.choice(sorted(self.model.rooms[cid].rows) or self.users))
            )
        for part in parts(new, MESSAGES):
            body = {"messages": [{"cid": cid, "id": id, "user_id": sender} for cid, id, sender in part]}
            for (cid, id, sender), result in zip(part, self.backend.ask("POST", "/v1/messages", body)["results"]):
                seq = self.model.rooms[cid].register(id, sender)
                if not result["ok"] or result["message"]["seq"] != seq:
                    raise Fault(f"{id} of {sender} in {cid} is to be number {seq}: {result}")
                found.append((cid, id, sender, seq))
        self.tally["messages"] += len(found)
        return found

    def use_apps(self):
        """Some online users read in some channels, or have their apps report deliveries."""
        online, questions = sorted(set(self.users) - self.offline), []
        for user in self.random.sample(online, min(40, len(online))):
            rooms = [room for _, room in sorted(self.model.rooms.items()) if user in room.rows and room.messages]
            chosen = [
                (room, self.random.randint(1, room.newest)) for room in self.random.sample(rooms, min(len(rooms), 4))
            ]
            ids = [(room.cid, room.messages[seq - 1][0]) for room, seq in chosen]
            if not chosen:
                continue
            if self.random.random() < 0.5:
                questions.append(("POST", "/v1/channels/read", {"user_id": user, "read_by_channel": dict(ids)}))
                for room, seq in chosen:
                    room.rows[user].reads.append(seq)
            else:
                entries = [{"cid": cid, "id": id} for cid, id in ids]
                questions.append(
                    ("POST", "/v1/channels/delivered", {"user_id": user, "latest_delivered_messages": entries}, 201)
                )
                for room, seq in chosen:
                    room.rows[user].deliveries.append(seq)
        for question, answer in zip(questions, self.backend.request_all(questions)):
            if not all(result["ok"] for result in answer["results"]):
                raise Fault(f"{question} was answered {answer}")
            self.tally["marks by apps"] += len(answer["results"])

    def push(self, hour, messages):
        """Fetches tickets and badges for offline users, and draws the time of each ack."""
        pushes = [
            self.model.push(cid, id, user, seq)
            for cid, id, sender, seq in messages
            for user in sorted(self.model.rooms[cid].rows)
            if user in self.offline and user != sender
        ]
        refused = self.refused(messages)
        wanted = pushes + refused
        self.random.shuffle(wanted)
        for part in parts(wanted, TICKETS):
            self.mint(part)
        users = sorted({push["user_id"] for push in pushes})
        for user, badge in self.backend.badges(users).items():
            if badge != self.model.badge(user):
                raise Fault(f"the badge of {user} is {badge}, not {self.model.badge(user)}")
        self.tally["tickets"] += len(pushes)
        self.tally["tickets refused"] += len(refused)
        self.tally["badges"] += len(users)
        for push in pushes:
            # Some devices never return, some acknowledge twice.
            for _ in range(self.random.choices([0, 1, 2], [15, 65, 20])[0]):
                lag = self.random.choices(range(4), [60, 20, 12, 8])[0]
                self.due[min(hour + lag, HOURS)].append(self.ack(push))

    def mint(self, pushes):
        entries = [
            {name: push[name] for name in ("cid", "message_id", "user_id")}
            | {"device": self.random.choice(["ios", "android", "web"])}
            for push in pushes
        ]
        tickets = self.backend.ask(
            "POST", "/v1/push/tickets", {"tickets": entries, "ttl": self.random.choice([600, 604_800])}
        )["tickets"]
        if len(tickets) != len(pushes):
            raise Fault(f"{len(pushes)} tickets are {len(tickets)}")
        for push, ticket in zip(pushes, tickets):
            is_right = (
                ticket == {"code": push["code"]}
                if "code" in push
                else isinstance(ticket, str) and 0 < len(ticket) <= 160
            )
            if not is_right:
                raise Fault(f"the ticket for {push} is {ticket}")
            push["ticket"] = ticket

    def refused(self, messages):
        """Requests for which no ticket is issued, each with its error code."""
        cid, id, _, _ = self.random.choice(messages)
        strangers = [user for user in self.users if user not in self.model.rooms[cid].rows]
        stranger = {"cid": cid, "message_id": id, "user_id": self.random.choice(strangers), "code": "member_not_found"}
        return [stranger, stranger | {"cid": "messaging:nowhere", "code": "channel_not_found"}]

    def ack(self, push):
        way, by, _ = self.random.choices(WAYS, [weight for _, _, weight in WAYS])[0]
        ack = push | {"by": by, "process": self.random.choice(self.processes[way])}
        if by == "name":
            ack |= {
                "provider": self.random.choice(PROVIDERS),
                "provider_message_id": f"p-{self.random.getrandbits(64):x}",
                "device": "phone",
            }
            if self.random.random() < 0.5:
                # Workers' clocks are off in both directions.
                at = milliseconds() + self.random.randint(-600_000, 600_000)
                ack |= {"acked_at": rfc3339(at), "acked_at_milliseconds": at}
        return ack

    # Acks.

    def acknowledge(self, acks, meanwhile):
        """Has the processes send all these acks while `meanwhile` runs, and applies the acks answered ok to
        the model."""
        self.random.shuffle(acks)
        self.possible = {id(ack): {self.model.answer(ack)} for ack in acks}
        self.under_way = collections.defaultdict(list)
        for ack in acks:
            self.under_way[ack["cid"]].append(ack)
        busy = [process for processes in self.processes.values() for process in processes]
        for process in busy:
            # Tickets in a device's request, or bytes in a piece of a body.
            most = 20 if process.way == "devices" else 30_000
            cuts = [self.random.choice([1, most, self.random.randint(1, most)]) for _ in range(40)]
            process.begin([ack for ack in acks if ack["process"] is process], self.specification["server"], cuts)
        meanwhile(acks)
        for process in busy:
            for ack, answer in process.end():
                if answer not in self.possible[id(ack)]:
                    raise Fault(f"{process.way}: {ack} was answered {answer}, not {self.possible[id(ack)]}")
                self.tally["acks " + answer] += 1
                self.counted["ticket" if ack["by"] == "ticket" else "worker", answer == "ok"] += 1
                if answer == "ok":
                    self.model.acknowledge(ack)

    def change(self, act, cid, *arguments):
        """Applies a change to the model; acks in flight for that channel may be answered as before or as
        after it."""
        act(cid, *arguments)
        for ack in self.under_way[cid]:
            self.possible[id(ack)].add(self.model.answer(ack))

    # Disturbances.

    def disturb(self, hour, acks):
        """Members return and leave, messages are deleted, a channel is deleted and recreated: those with
        acks in flight."""
        for _ in range(min(4, len(self.left))):
            cid, user = self.left.pop(self.random.randrange(len(self.left)))
            self.backend.ask("POST", f"/v1/channels/{cid}/members", {"add": [user]})
            self.change(self.model.join, cid, user)
            self.tally["came back"] += 1
        current = [ack for ack in acks if ack["row"] is self.model.row(ack["cid"], ack["user_id"])]
        members = sorted({(ack["cid"], ack["user_id"]) for ack in current})
        for cid, user in self.random.sample(members, min(len(members), 12)):
            self.backend.ask("POST", f"/v1/channels/{cid}/members", {"remove": [user]})
            self.change(self.model.leave, cid, user)
            self.left.append((cid, user))
            self.tally["left"] += 1
        messages = sorted({(ack["cid"], ack["message_id"]) for ack in current})
        for cid, message in self.random.sample(messages, min(len(messages), 15)):
            self.backend.ask("DELETE", f"/v1/channels/{cid}/messages/{message}")
            self.change(lambda cid: self.model.rooms[cid].deleted.add(message), cid)
            self.tally["messages deleted"] += 1
        if hour == HOURS // 2:
            self.make_anew(collections.Counter(ack["cid"] for ack in current).most_common(1)[0][0])
        self.use_apps()

    def make_anew(self, cid):
        members = sorted(self.model.rooms[cid].rows)
        self.backend.ask("DELETE", f"/v1/channels/{cid}")
        self.change(self.model.remove, cid)
        members = self.random.sample(members, (len(members) + 1) // 2)
        self.backend.ask(*self.opening(cid, members))
        self.change(self.model.create, cid, members)
        self.left = [(other, user) for other, user in self.left if other != cid]
        self.tally["channels recreated"] += 1

    # At the end.

    def channel_views(self):
        """The API's view of every channel, and the lists of one message of each."""
        channels = []
        for cid, room in sorted(self.model.rooms.items()):
            there = [message for message, _ in room.messages if message not in room.deleted]
            channels.append(
                (cid, [message for message, _ in room.messages], self.random.sample(there, min(len(there), 1)))
            )
        return self.backend.channel_views(channels)

    def times(self, found):
        """No delivery has a time in the future, whatever a worker's clock reported."""
        now = rfc3339(milliseconds())
        for cid, view in found.items():
            for user, row in view["rows"].items():
                if row.get("last_delivered_at", "") > now:
                    yield f"{user}'s row in {cid} is of {row['last_delivered_at']}"

    def forget_an_ack(self):
        """The model drops the acks of one message; returns the affected row."""
        rows = [
            (cid, user)
            for cid, room in sorted(self.model.rooms.items())
            for user, row in sorted(room.rows.items())
            if row.is_decided_by_acks()
        ]
        if not rows:
            raise Fault("no row is where acks alone have moved it")
        cid, user = self.random.choice(rows)
        row = self.model.row(cid, user)
        row.acks = [seq for seq in row.acks if seq != row.shown]
        return f"{user}'s row in {cid}"


def main():
    with open(sys.argv[1]) as file:
        specification = json.load(file)
    day = Day(specification)
    day.live()
    found = day.channel_views()
    wrong = differences(day.model, found) + list(day.times(found))
    for user, badge in day.backend.badges(day.users).items():
        if badge != day.model.badge(user):
            wrong.append(f"the badge of {user} is {badge}, not {day.model.badge(user)}")
    if (counted := day.backend.counted()) != day.counted:
        wrong.append(f"the gateways have counted {dict(counted)}, not {dict(day.counted)}")
    print("tally " + json.dumps(dict(sorted(day.tally.items()))))
    for text in wrong[:30]:
        print("fault: " + text)
    if wrong:
        raise Fault(f"{len(wrong)} differences")
    row = day.forget_an_ack()
    wrong = differences(day.model, found)
    if not any(text.startswith(row + " is ") for text in wrong):
        raise Fault(f"{row} is not missed: {wrong[:30]}")
    print(f"control: an ack is missed where the model forgets it: {wrong[0]}")
    print(
        f"ok {len(found)} channels, {len(day.users)} users: {day.tally['acks ok']} acks of"
        f" {day.tally['tickets']} pushes, all as they say"
    )


main()
