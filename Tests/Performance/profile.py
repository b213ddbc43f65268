"""Counts the instructions and allocations of fixed work in the release programs, and keeps callgrind's profiles of it.

usage: profile.py BINARIES DIRECTORY [--rows NAME...] [--check FILE | --write FILE]

Gateway and store run under valgrind's callgrind, for each row anew. A row sends the same requests in each run, over one
connection and in batches: a batch is one write, and the next one follows its last answer. So commits and batches of
frames are the same in each run. The store writes users' indexes and pages some seconds behind its answers: a row waits
until it has written those of the preparation, and its work ends before the next pages are due. DIRECTORY gets
ROW.PROGRAM.callgrind files.

An allocation is a call of malloc, calloc, realloc or posix_memalign.

--check compares the counts with those of FILE, and fails where instructions are more than 3 % higher, or allocations
0.5 higher; --write writes them there. FILE also names the versions of what the counts depend on: with another compiler,
C library or nghttp2 the counts differ, so --check compares nothing then, and says so.
"""
import argparse, json, os, pathlib, re, secrets, shutil, socket, subprocess, sys, tempfile, time, typing
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
TOLERANCE, ALLOCATIONS_TOLERANCE = 0.03, 0.5
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign"}


class Failure(Exception):
    pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Counts(typing.NamedTuple):
    """Instructions and allocations, of a profile or of one unit of a row's work."""

    instructions: float
    allocations: float

    @staticmethod
    def of_profile(file):
        """Adds up a file of callgrind: `cfn=(7) name` names a called function, later `cfn=(7)` alone, and the line
        `calls=N …` after it has the number of its calls."""
        text = file.read_text(errors="replace")
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
        if not total:
            raise Failure(f"no total in callgrind's file {file}")
        names = dict(re.findall(r"^c?fn=\((\d+)\) (.+)$", text, re.MULTILINE))
        calls = re.findall(r"^cfn=\((\d+)\).*\n(?:c\w+=.*\n)*?calls=(\d+)", text, re.MULTILINE)
        allocations = sum(int(count) for number, count in calls if names.get(number) in ALLOCATORS)
        return Counts(int(total[1]), allocations)

    def per(self, count):
        return Counts(round(self.instructions / count), round(self.allocations / count, 1))


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

    def wait_until_indexed(self):
        """Waits until no change of a user's index of channels is pending."""
        deadline = time.monotonic() + ANSWER_SECONDS
        url = f"http://127.0.0.1:{self.ports['store-admin']}/metrics"
        name = "tidemark_store_membership_changes_pending"
        while time.monotonic() < deadline:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
                values = re.findall(rf"^{name}\S* (\S+)$", answer.read().decode(), re.MULTILINE)
            if values and all(float(value) == 0 for value in values):
                return
            time.sleep(0.5)
        raise Failure(f"{name} is not 0 after {ANSWER_SECONDS} s")

    def counts(self, row):
        """Returns the instructions and allocations of each program since the last call, and keeps their profiles as
        those of `row`."""
        result = {}
        for name in PROGRAMS:
            process = self.processes[name]
            before = set(self.directory.glob(f"callgrind.{name}.*"))
            subprocess.run(
                ["callgrind_control", f"--dump={row}", str(process.pid)], check=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=ANSWER_SECONDS)
            [dump] = set(self.directory.glob(f"callgrind.{name}.*")) - before
            result[name] = Counts.of_profile(dump)
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
                services.wait_until_indexed()
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
    figures = {program: counts[program].per(count) for program in PROGRAMS}
    for program, figure in figures.items():
        print(f"{name:18} {program:8} {figure.instructions:>11,} instructions   {figure.allocations:>8,} allocations   "
              f"a {row.unit}", flush=True)
    return figures


def versions():
    """Returns the versions of what the counts depend on."""
    swift = subprocess.run(["swift", "--version"], check=True, capture_output=True, text=True).stdout
    packages = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", "libc6", "libnghttp2-14", "librocksdb7.8", "valgrind"],
        check=True, capture_output=True, text=True).stdout
    return [re.search(r"Swift version \S+", swift)[0], *packages.split("\n")[:-1]]


def check(figures, expected):
    """Returns the lines that say which counts are higher than the expected ones by more than the tolerance."""
    faults = []
    for name, counts in figures.items():
        for program, count in counts.items():
            if program not in expected.get(name, {}):
                faults.append(f"{name}, {program}: no figure is known")
                continue
            known = Counts(*expected[name][program])
            if count.instructions > (1 + TOLERANCE) * known.instructions:
                faults.append(f"{name}, {program}: {count.instructions:,} instructions instead of "
                              f"{known.instructions:,} ({count.instructions / known.instructions - 1:+.1%})")
            if count.allocations > known.allocations + ALLOCATIONS_TOLERANCE:
                faults.append(f"{name}, {program}: {count.allocations:,} allocations instead of {known.allocations:,}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", help="directory of the release programs")
    parser.add_argument("directory", type=pathlib.Path, help="directory for the profiles")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="compare with the figures in FILE")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    known = json.loads(options.check.read_text()) if options.check else None
    options.directory.mkdir(parents=True, exist_ok=True)
    figures = {name: measure(options.binaries, options.directory, name) for name in options.rows}
    if options.write:
        lines = [f'    "{name}": {json.dumps(row)}' for name, row in figures.items()]
        rows = ",\n".join(lines)
        options.write.write_text(f'{{\n  "versions": {json.dumps(versions())},\n  "rows": {{\n{rows}\n  }}\n}}\n')
    if known:
        if known["versions"] != versions():
            print(f"not compared: {options.check.name} has counts of {known['versions']}, and here are {versions()}")
            return
        faults = check(figures, known["rows"])
        if faults:
            raise Failure(f"more than {options.check.name} has:\n  " + "\n  ".join(faults))
        print(f"no count is more than {TOLERANCE:.0%} above {options.check.name}")


try:
    main()
except Failure as failure:
    sys.exit(f"profile: {failure}")
