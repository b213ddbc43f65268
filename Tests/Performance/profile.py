"""Counts the instructions of fixed work in the release programs, and keeps callgrind's profiles of it.

usage: profile.py BINARIES DIRECTORY [--rows NAME...] [--check FILE | --write FILE]

Gateway and store run under valgrind's callgrind, for each row anew. A row sends the same requests in each run, over one
connection and in batches: a batch is one write, and the next one follows its last answer. So commits and batches of
frames are the same in each run. The store writes pages some seconds behind its answers: a row waits until it has
written those of the preparation, and its work ends before the next ones are due. DIRECTORY gets ROW.PROGRAM.callgrind
files.

--check compares the counts with those of FILE, and fails beyond a difference of 3 %; --write writes them there.
"""
import argparse, json, os, pathlib, re, secrets, shutil, socket, subprocess, sys, tempfile, time
import urllib.error, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "IntegrationTests" / "Clients" / "Shared"))
from access_token import token
from h2_connection import Connection

PROGRAMS = ["gateway", "store"]
# Valgrind runs a program some 50 times slower.
START_SECONDS, ANSWER_SECONDS = 120, 120
# The store writes a page 5 s after its first change. A row's work has to end before.
PAGES_WRITTEN_SECONDS, WORK_SECONDS_MAX = 8, 4.5
# A row whose work took longer is measured again, so often.
ATTEMPTS = 3
TOLERANCE = 0.03


class Failure(Exception):
    pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Services:
    """A store and a gateway under callgrind, on loopback, in a directory of their own."""

    def __init__(self, binaries, directory):
        self.directory = pathlib.Path(directory)
        self.processes = {}
        self.ports = {name: free_port() for name in ["gateway", "store", "gateway-admin", "store-admin"]}
        self.secret = secrets.token_bytes(32).hex()
        for name in ["frame-secret", "jwt-secret"]:
            path = self.directory / name
            path.write_text(self.secret)
            path.chmod(0o600)
        shim = self.directory / "sigsuspend.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, HERE / "sigsuspend.c"], check=True)
        self.environment = {**os.environ, "LD_PRELOAD": str(shim)}
        self.binaries = pathlib.Path(binaries)

    def start(self):
        address = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        self.run("store", [
            "--data", self.directory / "data", "--listen", address["store"], "--admin", address["store-admin"],
            "--secret-file", self.directory / "frame-secret", "--loops", "1", "--memory", "512M"])
        self.wait_until_ready("store")
        self.run("gateway", [
            "--h2c", "--listen", address["gateway"], "--admin", address["gateway-admin"], "--store", address["store"],
            "--secret-file", self.directory / "frame-secret", "--jwt-secret-file", self.directory / "jwt-secret",
            "--loops", "1"])
        self.wait_until_ready("gateway")

    def run(self, name, flags):
        # Valgrind cannot read all of Swift's debug information.
        program = self.directory / f"tidemark-{name}"
        subprocess.run(["strip", "-g", "-o", program, self.binaries / program.name], check=True)
        counting = ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={self.profile(name)}"]
        log = open(self.directory / f"{name}.log", "wb")
        self.processes[name] = subprocess.Popen(
            counting + [program] + flags, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def profile(self, name):
        return self.directory / f"callgrind.{name}"

    def wait_until_ready(self, name):
        deadline = time.monotonic() + START_SECONDS
        url = f"http://127.0.0.1:{self.ports[name + '-admin']}/ready"
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                break
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.2)
        log = (self.directory / f"{name}.log").read_text(errors="replace")
        raise Failure(f"tidemark-{name} is not ready after {START_SECONDS} s:\n{log[-2000:]}")

    def counts(self, row):
        """Returns the instructions of each program since the last call, and keeps their profiles as those of `row`."""
        result = {}
        for name in PROGRAMS:
            process = self.processes[name]
            before = set(self.directory.glob(f"callgrind.{name}.*"))
            subprocess.run(
                ["callgrind_control", f"--dump={row}", str(process.pid)], check=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=ANSWER_SECONDS)
            [dump] = set(self.directory.glob(f"callgrind.{name}.*")) - before
            found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(errors="replace"), re.MULTILINE)
            if not found:
                raise Failure(f"no total in callgrind's file {dump}")
            result[name] = int(found[1])
            dump.rename(self.directory / f"{row}.{name}.callgrind")
        return result

    def connect(self, user=None):
        return Connection(self.ports["gateway"], token(self.secret.encode(), user))

    def end(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def exchange(connection, requests, status=("200", "201")):
    """Sends requests (method, path, body) in one write, and waits for all answers. Returns the bodies, in order."""
    for index, (method, path, body) in enumerate(requests):
        connection.send(method, path, index, None if body is None else json.dumps(body).encode())
    connection.flush()
    answers = {}
    connection.socket.settimeout(ANSWER_SECONDS)
    while len(answers) < len(requests):
        for index, headers, body in connection.receive():
            if headers.get(":status") not in status:
                raise Failure(f"{requests[index][:2]} answered {headers.get(':status')}: {body[:300]!r}")
            answers[index] = body
        if not connection.waiting and len(answers) < len(requests):
            raise Failure("the gateway closed the connection")
    return [answers[index] for index in range(len(requests))]


def members(count):
    return [f"user-{number:05}" for number in range(count)]


class Row:
    """One kind of fixed work: `prepare` is not counted, `work` is. Both take a connection with a server's token."""

    unit = "request"

    def __init__(self, services):
        self.services = services
        self.server = services.connect()

    def create_channels(self, name):
        """Creates 100 channels of ten members."""
        self.cids = [f"messaging:{name}-{number}" for number in range(100)]
        channels = [{"cid": cid, "members": members(10)} for cid in self.cids]
        exchange(self.server, [("POST", "/v1/channels", {"channels": channels})])

    def register(self, numbers):
        """Registers a message of each of these numbers in each channel, in one request for a number."""
        for number in numbers:
            messages = [{"cid": cid, "id": f"m{number}", "user_id": "user-00000"} for cid in self.cids]
            exchange(self.server, [("POST", "/v1/messages", {"messages": messages})])


class MarkRead(Row):
    """Marks of one user in 100 channels of ten members, in batches of `streams`."""

    streams, count, history = 100, 2000, 200

    def prepare(self):
        self.create_channels(type(self).__name__.lower())
        self.register(range(self.history))
        self.reader = self.services.connect("user-00001")
        self.next = 0
        self.send(self.streams * 5)

    def send(self, count):
        for _ in range(count // self.streams):
            batch = []
            for _ in range(self.streams):
                cid, message = self.cids[self.next % len(self.cids)], self.next // len(self.cids)
                batch.append(("POST", f"/v1/channels/{cid}/read?message_id=m{message}", None))
                self.next += 1
            exchange(self.reader, batch)

    def work(self):
        self.send(self.count)
        return self.count


class MarkReadAlone(MarkRead):
    """The same marks, one at a time: a commit for each."""

    streams, count, history = 1, 300, 20


class ReadState(Row):
    """The 100 rows of a channel of 100 members, as one of them asks for them."""

    def prepare(self):
        people = members(100)
        self.cid = "messaging:read-state"
        self.cids = [self.cid]
        exchange(self.server, [("PUT", f"/v1/channels/{self.cid}", {"members": people})])
        self.register(range(1, 101))
        for number, user in enumerate(people[1:]):
            body = {"message_id": f"m{number + 1}", "user_id": user}
            exchange(self.server, [("POST", f"/v1/channels/{self.cid}/read", body)])
        self.reader = self.services.connect("user-00001")
        self.send(100)

    def send(self, count):
        for _ in range(count // 20):
            exchange(self.reader, [("GET", f"/v1/channels/{self.cid}/read-state", None)] * 20)

    def work(self):
        self.send(500)
        return 500


class Channels(Row):
    """Channels of ten members of their own, created 100 a request."""

    unit = "channel"

    def prepare(self):
        self.next = 0
        self.send(1)

    def send(self, requests):
        for _ in range(requests):
            channels = []
            for _ in range(100):
                people = [f"member-{self.next}-{number}" for number in range(10)]
                channels.append({"cid": f"messaging:created-{self.next}", "members": people})
                self.next += 1
            exchange(self.server, [("POST", "/v1/channels", {"channels": channels})])

    def work(self):
        self.send(1)
        return 100


class Messages(Row):
    """Messages registered in batches of 100, in 100 channels of ten members."""

    unit = "message"

    def prepare(self):
        self.create_channels("messages")
        self.register(range(10))

    def work(self):
        self.register(range(10, 30))
        return 2000


class Acks(Row):
    """Push acks by name, 500 a request."""

    unit = "ack"

    def prepare(self):
        self.create_channels("acks")
        self.register(range(60))
        self.acknowledged = 0
        self.acknowledge(1)

    def acknowledge(self, requests):
        for _ in range(requests):
            acks = []
            for _ in range(5):
                acks += [
                    {"cid": cid, "message_id": f"m{self.acknowledged}", "user_id": "user-00001"} for cid in self.cids]
                self.acknowledged += 1
            [answer] = exchange(self.server, [("POST", "/v1/push/acks", {"acks": acks})])
            refused = [result for result in json.loads(answer)["results"] if not result["ok"]]
            if refused:
                raise Failure(f"an ack was refused: {refused[0]}")

    def work(self):
        self.acknowledge(4)
        return 2000


ROWS = {
    "mark-read-100": MarkRead,
    "mark-read-1": MarkReadAlone,
    "read-state-100": ReadState,
    "channels-of-10": Channels,
    "messages-by-100": Messages,
    "acks-by-name": Acks,
}


def measure(binaries, profiles, name):
    """Returns the instructions of each program for one unit of a row, and prints them."""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="tidemark-profile-") as directory:
            services = Services(binaries, directory)
            try:
                services.start()
                row = ROWS[name](services)
                row.prepare()
                time.sleep(PAGES_WRITTEN_SECONDS)
                services.counts("start")
                begin = time.monotonic()
                count = row.work()
                seconds = time.monotonic() - begin
                counts = services.counts(name)
            finally:
                services.end()
            for file in pathlib.Path(directory).glob(f"{name}.*.callgrind"):
                shutil.copy(file, profiles)
        if seconds <= WORK_SECONDS_MAX:
            break
        print(f"{name}: the work took {seconds:.1f} s, so that pages were written within it; once more", flush=True)
    else:
        raise Failure(f"{name}: this machine is too slow, or busy")
    figures = {program: round(counts[program] / count) for program in PROGRAMS}
    print(f"{name:18}", *(f"{program} {figures[program]:>11,}" for program in PROGRAMS),
          f"instructions a {row.unit}", sep="   ", flush=True)
    return figures


def check(figures, expected):
    """Returns the lines that say which counts differ from the expected ones by more than the tolerance."""
    faults = []
    for name, counts in figures.items():
        for program, count in counts.items():
            known = expected.get(name, {}).get(program)
            if known is None:
                faults.append(f"{name}, {program}: no figure is known")
            elif abs(count - known) > TOLERANCE * known:
                faults.append(f"{name}, {program}: {count:,} instead of {known:,} ({count / known - 1:+.1%})")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", help="directory of the release programs")
    parser.add_argument("directory", type=pathlib.Path, help="directory for the profiles")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="compare with the figures in FILE")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    figures = {name: measure(options.binaries, options.directory, name) for name in options.rows}
    if options.write:
        options.write.write_text(json.dumps(figures, indent=2) + "\n")
    if options.check:
        faults = check(figures, json.loads(options.check.read_text()))
        if faults:
            raise Failure(f"more than {TOLERANCE:.0%} from {options.check.name}:\n  " + "\n  ".join(faults))
        print(f"all counts are within {TOLERANCE:.0%} of {options.check.name}")


try:
    main()
except Failure as failure:
    sys.exit(f"profile: {failure}")
