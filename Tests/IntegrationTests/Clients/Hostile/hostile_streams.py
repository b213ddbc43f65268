"""Event streams whose clients are hostile or unlucky.

The clients never read, end in every possible way, reconnect by the thousand, or send arbitrary ids.

usage: hostile_streams.py CASE SPECIFICATION

SPECIFICATION is a JSON file: `gateway` and `admin` (ports), `server` (a token) and `users` (name: token).

Output lines: `restart` asks the test to restart the gateway; the test answers `done` on standard input. The
last line begins with `ok`.
"""
import asyncio, json, sys, time
from event_client import Blocks, Connection, metrics

with open(sys.argv[2]) as file:
    specification = json.load(file)
port, admin, server, tokens = (specification[name] for name in ("gateway", "admin", "server", "users"))
users = sorted(tokens)


class Stream:
    """One stream, and its events."""

    def __init__(self, user, since=None, query=""):
        self.user, self.since, self.query = user, since, query
        self.status, self.events, self.first, self.last, self.has_ended = None, [], None, None, False
        self.blocks = Blocks()

    async def open(self, connection=None, window=1 << 20):
        self.connection = connection or await Connection.to(port, window)
        headers = [("last-event-id", self.since)] if self.since else []
        self.number = self.connection.open("/v1/events" + self.query, tokens[self.user], headers, self)
        return self

    def began(self, status, headers):
        self.status = status

    def data(self, data):
        if self.status != 200:
            return
        for event, id in self.blocks.feed(data):
            if event is not None:
                self.events.append(event)
            self.first, self.last = self.first or id, id or self.last

    def ended(self):
        self.has_ended = True

    def kinds(self):
        return [event["type"] for event in self.events]

    def has_heard_of(self, message):
        return any(event.get("message", {}).get("id") == message for event in self.events)


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


async def eventually(holds, what, limit=120):
    """The limit only prevents a hang."""
    deadline = time.monotonic() + limit
    while not (found := await holds()):
        check(time.monotonic() < deadline, f"timed out after {limit} s waiting for: {what}")
        await asyncio.sleep(0.05)
    return found


async def all_of(streams, holds, what):
    async def condition():
        return all(holds(stream) for stream in streams)

    await eventually(condition, what)


async def metric_is(name, value, what):
    async def condition():
        return (await metrics(admin)).get("tidemark_gateway_" + name) == value

    await eventually(condition, f"{what}: {name} is not {value}")


async def ask(method, path, body=None, connection=None):
    connection = connection or await Connection.to(port)
    status, _, answer = await connection.request(method, path, server, body)
    check(status in (200, 201), f"{method} {path} answered {status} {answer}")
    return answer


async def create(cid, members):
    await ask("PUT", f"/v1/channels/{cid}", {"members": members})


async def register(cid, ids):
    answer = await ask("POST", "/v1/messages", {"messages": [{"cid": cid, "id": id} for id in ids]})
    check(all(result["ok"] for result in answer["results"]), f"not all of {ids[0]} and on were registered")


async def never_reading():
    """A client that does not read has bounded memory, blocks no other client, and gets a reset when it reads
    again."""
    cid, silent = "messaging:flood", 20
    await create(cid, users[: silent + 1])
    reader = await Stream(users[silent]).open()
    # Half of them do not read from the socket; the other half give the stream no window.
    stopped = [await Stream(user).open() for user in users[: silent // 2]]
    closed = [await Stream(user).open(window=0) for user in users[silent // 2 : silent]]
    await all_of([reader] + stopped, lambda stream: stream.last, "a stream begins")
    await all_of(closed, lambda stream: stream.status == 200, "a stream without a window is answered")
    for stream in stopped:
        stream.connection.pause()
    for first in range(0, 6_000, 500):
        ids = [f"m-{number}" for number in range(first, first + 500)]
        await register(cid, ids)
        await all_of([reader], lambda stream: stream.has_heard_of(ids[-1]), f"a reading client gets {ids[-1]}")
    heard = [event["message"]["id"] for event in reader.events if event["type"] == "message.new"]
    check(heard == [f"m-{number}" for number in range(6_000)], "a reading client got each message once and in order")
    found = await metrics(admin)
    resets, longest = (found["tidemark_gateway_" + name] for name in ("event_resets_total", "event_queue_entries_max"))
    check(resets >= silent and longest <= 1_024, f"{resets} resets, {longest} events waited for one stream")
    for stream in stopped:
        stream.connection.resume()
    for stream in closed:
        stream.connection.h2.increment_flow_control_window(1 << 20, stream.number)
        stream.connection._flush()
    await register(cid, ["last"])
    await all_of(
        stopped + closed, lambda stream: stream.has_heard_of("last"), "a client that reads again gets new events"
    )
    for stream in stopped + closed:
        check(
            stream.kinds().count("stream.reset") == 1,
            f"{stream.user} got {stream.kinds().count('stream.reset')} resets",
        )
        check(not stream.has_ended, f"the stream of {stream.user} goes on")
    return f"{silent} streams that did not read, 6000 messages, {int(longest)} events waited at most"


async def ending():
    """After any end of a stream or its connection no state of it remains; other streams continue."""
    cid = "messaging:ends"
    await create(cid, users[:12])
    await metric_is("event_streams", 0, "before")
    stays = await Stream(users[0]).open()
    connections = [await Connection.to(port) for _ in range(4)]
    streams = [[await Stream(user).open(connection) for user in users[1:6]] for connection in connections]
    every = [stream for some in streams for stream in some]
    await all_of([stays] + every, lambda stream: stream.last, "a stream begins")
    await metric_is("event_streams", 21, "all are open")
    reset, finished, cut, going = connections
    for stream in streams[0]:
        reset.h2.reset_stream(stream.number, error_code=8)
    reset._flush()
    await metric_is("event_streams", 16, "after RST_STREAM")
    await ask("GET", f"/v1/channels/{cid}", connection=reset)
    finished.transport.write_eof()
    await metric_is("event_streams", 11, "after the client's FIN")
    cut.cut()
    await metric_is("event_streams", 6, "after the connection was reset")
    # A client's GOAWAY rejects new streams of the server; the client's own continue (RFC 9113 section 6.8).
    # python3-h2 would use none after that.
    going.transport.write(bytes([0, 0, 8, 7] + [0] * 13))
    await register(cid, ["after"])
    await all_of(
        [stays] + streams[3], lambda stream: stream.has_heard_of("after"), "open streams get events, after GOAWAY too"
    )
    going.cut()
    stays.connection.cut()
    await metric_is("event_streams", 0, "in the end")

    async def forgotten():
        return (await metrics(admin)).get("tidemark_gateway_event_channels") == 0

    await eventually(forgotten, "channels without streams are forgotten")
    return "20 streams ended by RST_STREAM, FIN, a reset connection and after GOAWAY"


async def crowd():
    """All clients reconnect at once to a gateway that has just started: each is served, in turn."""
    cid, count, per_connection = "messaging:crowd", specification["crowd"], 100
    for first in range(0, len(users), 50):
        await create(f"{cid}-{first}", users[first : first + 50])
    await create(cid, users)

    async def come(last):
        """`last`: the last ids of the clients."""
        connections = [await Connection.to(port) for _ in range(count // per_connection)]
        streams = []
        for number in range(count):
            since = last[number] if last else None
            streams.append(await Stream(users[number % len(users)], since).open(connections[number // per_connection]))
        def is_answered(stream):
            return stream.last or stream.has_ended or stream.status not in (None, 200)

        await all_of(streams, is_answered, "all are answered")
        # On a busy machine a request of the gateway may pass its deadline. It ends such a stream, whose client comes back.
        came_back = 0
        for _ in range(20):
            ended = [number for number, stream in enumerate(streams) if stream.has_ended and not stream.last]
            if not ended:
                break
            came_back += len(ended)
            for number in ended:
                connection = await Connection.to(port)
                streams[number] = await Stream(users[number % len(users)], last[number] if last else None).open(connection)
            await all_of([streams[number] for number in ended], is_answered, "those that came back are answered")
        check(not any(stream.has_ended for stream in streams), "a stream ended each time before its first id")
        timeouts = (await metrics(admin))["tidemark_gateway_store_timeouts_total"]
        check(came_back == 0 or timeouts > 0, f"{came_back} streams ended, and no request passed its deadline")
        refused = [stream.status for stream in streams if stream.status != 200]
        check(not refused, f"{len(refused)} streams were refused: {refused[:3]}")
        return streams

    streams = await come(None)
    ids = [stream.last for stream in streams]
    print("restart", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await all_of(streams, lambda stream: stream.has_ended, "the streams of the killed gateway end")
    # Meanwhile there is an event that all of them missed.
    await register(cid, ["meanwhile"])
    streams = await come(ids)
    await metric_is("event_openings_waiting", 0, "no stream waits")
    await metric_is("event_streams", count, "all are open")
    await register(cid, ["after"])
    await all_of(streams, lambda stream: stream.has_heard_of("after"), "each gets new events")
    check(all(stream.has_heard_of("meanwhile") for stream in streams), "each gets the missed events")
    check(not any("stream.reset" in stream.kinds() for stream in streams), "no stream was reset")
    return f"{count} streams came back at once"


async def cursors():
    """An id of another store, too old or in the future gets a reset, then live events. A malformed id is
    rejected by name."""
    cid = "messaging:cursors"
    await create(cid, users[:1])
    first = await Stream(users[0]).open()
    await all_of([first], lambda stream: stream.last, "a stream begins")
    store, now = first.last.split("-")
    anew = {
        "another store's": "0" * 32 + "-" + now,
        "8 days old": f"{store}-{int(now) - 8 * 86_400_000}",
        "of 1970": f"{store}-0",
        "of tomorrow": f"{store}-{int(now) + 86_400_000}",
        "of the year 9999": f"{store}-253402300799999",
    }
    streams = {}
    for what, id in anew.items():
        streams[what] = await Stream(users[0], since=id).open()
        streams[what + ", in the query"] = await Stream(users[0], query="?since=" + id).open()
    streams["the id of now"] = await Stream(users[0], since=first.last).open()
    await all_of(streams.values(), lambda stream: stream.last, "a stream begins")
    await register(cid, ["m"])
    await all_of(streams.values(), lambda stream: stream.has_heard_of("m"), "each is live")
    for what, stream in streams.items():
        resets = stream.kinds().count("stream.reset")
        check(
            resets == (what != "the id of now") and "stream.reset" in stream.kinds()[:1] or not resets,
            f"{what}: {stream.kinds()}",
        )
    malformed = [
        "x",
        store,
        store + "-",
        "-" + now,
        f"{store}-{now}x",
        f"{store}-{'9' * 16}",
        f"{store[:-1]}g-{now}",
        f"{store.upper()}-{now}",
        f"{store}--1",
        f"{store}-1e3",
        "a" * 5_000,
    ]
    for id in malformed:
        for header, query in ((True, ""), (False, "?since=" + id)):
            connection = await Connection.to(port)
            refused = Refused()
            connection.open("/v1/events" + query, tokens[users[0]], [("last-event-id", id)] if header else [], refused)
            await all_of([refused], lambda answer: answer.has_ended, f"{id[:60]} is answered")
            answer = json.loads(refused.body)
            check(
                (refused.status, answer["code"]) == (400, "invalid_field"),
                f"{id[:60]} was answered {refused.status} {answer}",
            )
    return f"{len(streams)} streams with ids from anywhere, {2 * len(malformed)} with what is none"


async def newcomers():
    """New streams to idle shards do not lower the ids of existing ones, and begin with a current id."""
    cid = "messaging:lively"
    await create(cid, users[:1])
    listener = await Stream(users[0]).open()
    await all_of([listener], lambda stream: stream.last, "a stream begins")
    times, streams = [int(listener.last.split("-")[1])], []
    for number, user in enumerate(users[1:]):
        streams.append(await Stream(user).open())
        await register(cid, [f"m-{number}"])
        await all_of([listener], lambda stream: stream.has_heard_of(f"m-{number}"), "an open stream gets each message")
        times.append(int(listener.last.split("-")[1]))
    await all_of(streams, lambda stream: stream.last, "a stream begins")
    back = max(before - after for before, after in zip(times, times[1:]))
    check(back < 5_000, f"ids fell by {back} ms: {times}")
    behind = times[-1] - min(int(stream.first.split("-")[1]) for stream in streams)
    check(behind < 60_000, f"a newcomer's first id was {behind} ms old")
    return f"{len(streams)} newcomers"


class Refused:
    """An answer that is not a stream."""

    def __init__(self):
        self.status, self.body, self.has_ended = None, b"", False

    def began(self, status, headers):
        self.status = status

    def data(self, data):
        self.body += data

    def ended(self):
        self.has_ended = True


cases = {"never_reading": never_reading, "ending": ending, "crowd": crowd, "cursors": cursors, "newcomers": newcomers}
print("ok", asyncio.run(cases[sys.argv[1]]()), flush=True)
