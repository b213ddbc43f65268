"""A hundred clients on several gateways build pictures of their channels from events alone.

Meanwhile users act, connections are cut, readers stop reading and processes are killed. In the end each
picture must equal the answers of the queries.

usage: loss.py SPECIFICATION

SPECIFICATION is a JSON file: `gateways` and `admins` (ports), `ends` (what ends: `store`, `gateway` or `both`, as
often as it stands there), `certificates` (of the gateways with TLS, else
empty), `seed`, `seconds`, `least_counts` (name in the tally: count), `extra_seconds`, `server` (a token), `users`
(name: token), and `way`: `disturbed` or `control`. A disturbed run lasts `seconds`, and then until it has reached the
counts, for at most `extra_seconds`. In the control the history is short and without disturbances. Each client of a user
ignores one kind of event, and the comparison must find it.

Output lines: `kill store`, `start store`, `kill gateway 0`, `stop gateway 0` and `start gateway 0` ask the
test to do that; the test answers `done` on standard input. The last line begins with `ok`.
"""
import asyncio, collections, json, sys, time
from event_client import metrics, trust
from loss_backend import CHANNELS, Story, Worker, Backend
from loss_client import KINDS, Client

WORKERS = 12


def say(line):
    print(line, flush=True)


class Stack:
    """The processes, which the test controls on request."""

    def __init__(self, backend, admins, choices):
        self.backend, self.admins, self.random = backend, admins, backend.generator("the processes")
        self.choices = choices
        self.queue_max = 0
        self.counters = collections.Counter()

    async def order(self, line):
        say(line)
        answer = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        if answer.strip() != "done":
            raise SystemExit(f"fault: {line}: {answer.strip() or 'nobody answers'}")

    async def collect_metrics(self, numbers):
        for number in numbers:
            found = await metrics(self.admins[number])
            self.queue_max = max(self.queue_max, found.get("tidemark_gateway_event_queue_entries_max", 0))
            for name in ("events_written", "events_conflated", "event_resets", "event_resumes"):
                self.counters[name] += int(found.get(f"tidemark_gateway_{name}_total", 0))

    async def kill_some(self):
        """Kills one process after another, until the time is over."""
        while not self.backend.is_over:
            await asyncio.sleep(self.random.uniform(1, 6))
            what = self.random.choice(self.choices)
            number, is_killed = self.random.randrange(len(self.admins)), self.random.random() < 0.75
            down = self.random.uniform(5.5, 7) if self.random.random() < 0.1 else self.random.uniform(0, 2)
            if self.backend.calm or self.backend.is_over:
                continue
            self.backend.is_down = True
            ended = []
            if what in ("store", "both"):
                await self.order("kill store")
                ended.append("store")
            if what in ("gateway", "both"):
                await self.collect_metrics([number])
                await self.order(f"{'kill' if is_killed else 'stop'} gateway {number}")
                ended.append(f"gateway {number}")
            for process in ended:
                self.backend.tally[f"{process.split()[0]}s ended"] += 1
            await asyncio.sleep(down)
            for process in reversed(ended):
                await self.order(f"start {process}")
            self.backend.is_down = False


async def disturb(backend, clients):
    generated, slow = backend.generator("disturbances"), set()
    while not backend.is_over:
        await asyncio.sleep(generated.uniform(0, 0.3))
        client = generated.choice(clients)
        choice = generated.random()
        if backend.calm:
            continue
        if choice < 0.75:
            client.cut()
            backend.tally["cuts"] += 1
        else:
            slow = {task for task in slow if not task.done()} | {asyncio.create_task(client.stop_reading())}
    await asyncio.gather(*slow)


def make_clients(backend):
    """A client of all channels for every user. Some users have a second device, which asks for totals, names
    channels, or is a server for the user. Servers for all users come on top."""
    users, clients = backend.users, []

    def add(viewer, token, query=None, channels=None):
        clients.append(Client(backend, len(clients), viewer, token, query or {}, channels))

    for user in users:
        add(user, backend.tokens[user])
    for user in users[:12]:
        add(user, backend.tokens[user], {"totals": "true"})
    for user in users[12:20]:
        mine = [cid for cid in backend.cids if user in backend.members[cid]]
        if mine:
            add(user, backend.tokens[user], None, set(mine[:3]))
    for user in users[20:24]:
        add(user, backend.server, {"user_id": user})
    while len(clients) < 100:
        first = len(clients) % (CHANNELS - 4)
        add(None, backend.server, None, set(backend.cids[first : first + 4]))
    return clients


async def compare(client):
    """The differences of a client's picture. Totals are sent at most once a second, so a difference of
    theirs may pass."""
    for _ in range(40):
        differences = client.picture.differences(await client.queried_picture())
        if not differences or client.drops or any(not text.startswith("totals") for text in differences):
            return differences
        await asyncio.sleep(0.25)
    return differences


async def run_until_counts(backend, background, specification):
    starts = time.monotonic()
    while True:
        overtime = time.monotonic() - starts - specification["seconds"]
        missing = {
            name: f"{backend.tally[name]} of {least}"
            for name, least in specification["least_counts"].items()
            if backend.tally[name] < least
        }
        if overtime >= 0 and not missing:
            return
        if overtime >= specification["extra_seconds"]:
            raise SystemExit(f"fault: the run did not reach its counts in time: {missing}")
        await asyncio.sleep(0.2)
        if backend.failure is not None:
            raise backend.failure
        for task in background:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()


async def main():
    with open(sys.argv[1]) as file:
        specification = json.load(file)
    for port, certificate in zip(specification["gateways"], specification["certificates"]):
        if certificate:
            trust(port, certificate)
    backend = Backend(specification)
    generated = backend.generator("the backend's state")
    for cid in backend.cids:
        await backend.create(cid, generated)
    story = Story(backend)
    if backend.is_control:
        await story.begin()
    clients = backend.clients = make_clients(backend)
    background = []

    def start(work):
        background.append(asyncio.create_task(work))
        return background[-1]

    lives = [start(client.live()) for client in clients]
    if left := await backend.until(clients, lambda client: client.is_live and not client.is_asking, 60):
        raise SystemExit(f"fault: {len(left)} streams did not begin: {left[0]}")
    stack = Stack(backend, specification["admins"], specification["ends"])
    if backend.is_control:
        await story.play(
            [client.viewer for client in clients[: len(backend.users)] if client.drops == "notification.mark_unread"]
        )
        work = []
    else:
        work = [start(Worker(backend, number).live()) for number in range(WORKERS)]
        work += [start(stack.kill_some()), start(disturb(backend, clients))]
        await run_until_counts(backend, background, specification)
    backend.is_over = True
    backend.calm += 1
    await asyncio.gather(*work)
    last = time.time() * 1_000
    # Half of the clients reconnect once more, so that both resumed and long-lived streams are compared.
    if not backend.is_control:
        for client in clients[::2]:
            client.connection and client.connection.cut()
    left = await backend.until(
        clients, lambda client: client.is_live and client.through >= last and not client.is_asking, 90
    )
    if left:
        raise SystemExit(
            f"fault: {len(left)} streams did not come up to the last command: {left[0]}, {left[0].last},"
            f" live {left[0].is_live}"
        )
    await stack.collect_metrics(range(len(backend.gateways)))

    faults, missed = [], set()
    for start_at in range(0, len(clients), 10):
        part = clients[start_at : start_at + 10]
        for client, found in zip(part, await asyncio.gather(*(compare(client) for client in part))):
            if client.drops is None:
                faults += [f"{client}: {text}" for text in found]
            elif found:
                missed.add(client.drops)
    for task in lives:
        task.cancel()
    say("tally " + json.dumps(dict(sorted(backend.tally.items()))))
    say("gateways " + json.dumps(dict(stack.counters, queue_entries_max=int(stack.queue_max))))
    unknown = sum(client.picture.unknown for client in clients)
    for fault in faults[:30]:
        say("fault: " + fault)
    if faults:
        raise SystemExit(f"fault: {len(faults)} differences")
    if backend.is_control:
        if unseen := set(KINDS) - missed:
            raise SystemExit(f"fault: nobody missed {sorted(unseen)}")
        return say(f"ok {len(missed)} kinds of events are missed where they are ignored, and nothing else")
    if stack.queue_max > 1_024:
        raise SystemExit(f"fault: {stack.queue_max} events waited for one stream")
    counts = ", ".join(
        f"{backend.tally[name]} {name}"
        for name in ("events", "resumes", "cuts", "slow readers", "stores ended", "gateways ended", "stream.reset")
    )
    say(f"ok {len(clients)} clients: {counts}, {unknown} marks at unknown messages")


asyncio.run(main())
