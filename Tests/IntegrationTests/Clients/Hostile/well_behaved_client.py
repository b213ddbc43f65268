"""A well-behaved client beside an attack: one connection, 50 requests a second, each of which must be answered.

Requests are sent on time, whether earlier ones are answered or not, and their latency counts from that time.

usage: well_behaved_client.py SPECIFICATION

SPECIFICATION is a JSON file: `port` (of a gateway without TLS, or, with `certificate`, of a load balancer), `method`,
`path` and `token` of the request, and its `pids`: processes that must not end. Prints `ready` after the first answer.
At the end of standard input it prints `ok` and the figures, or a line that begins with `fault:`.

Attacks written in Python import WellBehavedClient.
"""
import asyncio, json, multiprocessing, os, socket, ssl, sys, time
import httpx


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


class WellBehavedClient:
    """Runs in a process of its own: a thread would wait for the interpreter lock of the attack.

    `before` is called with the client's request function before the first request.
    """

    def __init__(self, specification, before=None):
        self.port, self.certificate = specification["port"], specification.get("certificate")
        self.method, self.path, self.token = (specification[name] for name in ("method", "path", "token"))
        self.before = before
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(other,), daemon=True)
        self.process.start()
        check(self.pipe.poll(30), "the client did not start within 30 s")
        check(*self.pipe.recv())

    def run(self, pipe):
        # Older versions of httpcore do not set TCP_NODELAY. A write then waits up to 40 ms for the delayed
        # acknowledgement of the previous one. asyncio sets it.
        plain = socket.create_connection

        def connect_at_once(*arguments, **options):
            made = plain(*arguments, **options)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made

        socket.create_connection = connect_at_once
        try:
            with httpx.Client(**self.options()) as client:
                if self.before:
                    self.before(lambda *request: self.check_answer(request, client.request(**self.request(*request))))
            asyncio.run(self.load(pipe))
        except (SystemExit, Exception) as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))

    async def load(self, pipe):
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1), **self.options()) as client:

            async def call():
                # HAProxy 2.6 loses the end of a body that is empty and ends with a frame of its own.
                request = (self.method, self.path, {} if self.method == "POST" else None, self.token)
                self.check_answer(request, await client.request(**self.request(*request)))

            await call()
            pipe.send((True, ""))
            calls, faults, open_calls = [], [], set()

            async def timed_call(at):
                try:
                    await call()
                except (SystemExit, Exception) as error:
                    faults.append(f"{type(error).__name__}: {error}")
                calls.append((at, time.monotonic() - at))

            at = time.monotonic()
            while not pipe.poll():
                open_calls.add(task := asyncio.create_task(timed_call(at)))
                task.add_done_callback(open_calls.discard)
                at += 0.02
                await asyncio.sleep(max(0, at - time.monotonic()))
            await asyncio.gather(*open_calls)
            pipe.send((calls, faults))

    def options(self):
        return {
            "http1": False,
            "http2": True,
            "timeout": 60,
            "verify": ssl.create_default_context(cafile=self.certificate),
        }

    def request(self, method, path, body, token):
        origin = f"{'https://localhost' if self.certificate else 'http://127.0.0.1'}:{self.port}"
        return {"method": method, "url": origin + path, "json": body, "headers": {"authorization": "Bearer " + token}}

    def check_answer(self, request, answer):
        check(answer.status_code < 300, f"{request[0]} {request[1]} answers {answer.status_code} {answer.text}")

    def end(self, since=0):
        """Ends the client; returns the figures of the requests since that time. All must have been answered."""
        self.pipe.send(None)
        check(self.pipe.poll(120), "the client did not end within 120 s")
        calls, faults = self.pipe.recv()
        check(not faults, f"{len(faults)} of {len(calls)} answers: {faults[:3]}")
        times = sorted(taken for start, taken in calls if start >= since)
        check(len(times) > 10, f"only {len(times)} requests were sent")
        return f"{len(times)} answers, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms"


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        specification = json.load(file)
    well_behaved_client = WellBehavedClient(specification)
    print("ready", flush=True)
    sys.stdin.read()
    for pid in specification.get("pids", []):
        check(os.path.exists(f"/proc/{pid}"), f"process {pid} has ended")
    print("ok", well_behaved_client.end(), flush=True)
