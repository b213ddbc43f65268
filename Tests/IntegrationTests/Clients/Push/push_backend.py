"""The requests of a push day's backend over both gateways, and the processes that send acks."""
import collections, concurrent.futures, itertools, json, os, re, subprocess, sys, threading
import httpx

# Entries in one call.
MESSAGES, TICKETS, USERS, IDS = 1_000, 1_000, 100, 100
# Concurrent requests.
THREADS = 6


class Fault(SystemExit):
    def __init__(self, text):
        super().__init__("fault: " + text)


def parts(items, size):
    return [items[start : start + size] for start in range(0, len(items), size)]


class Backend:
    """Sends requests to both gateways in turn, with a server's token. Each thread has connections of its
    own."""

    def __init__(self, specification):
        self.specification = specification
        self.clients, self.threads = threading.local(), concurrent.futures.ThreadPoolExecutor(THREADS)

    def connect(self):
        """An endless iterator over the clients of the gateways."""
        headers = {"authorization": "Bearer " + self.specification["server"]}
        return itertools.cycle([
            httpx.Client(
                http1=False, http2=True, timeout=60, headers=headers, verify=certificate or True,
                base_url=f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}")
            for port, certificate in zip(self.specification["gateways"], self.specification["certificates"])])

    def ask(self, method, path, body=None, status=200):
        if not hasattr(self.clients, "turns"):
            self.clients.turns = self.connect()
        answer = next(self.clients.turns).request(method, path, json=body)
        if answer.status_code != status:
            raise Fault(f"{method} {path} answered {answer.status_code} {answer.text[:500]}")
        return answer.json()

    def request_all(self, questions):
        """The answers to independent requests, in their order."""
        return list(self.threads.map(lambda question: self.ask(*question), questions))

    def pages(self, path, name):
        found, cursor = [], ""
        while True:
            page = self.ask("GET", path + cursor)
            found += page[name]
            if "next" not in page:
                return found
            cursor = "?cursor=" + page["next"]

    def badges(self, users):
        """Badge counts, a hundred users a call."""
        found = {}
        for part in parts(users, USERS):
            answer = self.ask("POST", "/v1/unread", {"user_ids": part})["users"]
            if [user["user_id"] for user in answer] != part:
                raise Fault(f"the badges of {part} are those of {answer}")
            for user in answer:
                found[user["user_id"]] = {
                    name: user[name] for name in ("total_unread_count", "unread_channels", "unread_threads")
                }
        return found

    def channel_views(self, channels):
        """`channels`: (cid, ids, listed) of each. Returns the views by cid."""
        return dict(
            zip(
                [cid for cid, _, _ in channels], self.threads.map(lambda channel: self.channel_view(*channel), channels)
            )
        )

    def channel_view(self, cid, ids, listed):
        """The API's view of a channel: rows, the statuses of its messages, the lists of some of them."""
        path = f"/v1/channels/{cid}"
        view = {
            "rows": {row["user"]["id"]: row for row in self.pages(path + "/read-state", "read")},
            "statuses": {},
            "lists": {},
        }
        for part in parts(ids, IDS):
            for status in self.ask("POST", path + "/receipts/query", {"message_ids": part})["statuses"]:
                view["statuses"][status["message_id"]] = status
        for id in listed:
            view["lists"][id] = {
                name: [member["user"]["id"] for member in self.pages(f"{path}/messages/{id}/{name}", "members")]
                for name in ("readers", "delivered", "unread")}
        return view

    def counted(self):
        """The acks that the gateways have counted: (by, whether the ack was applied)."""
        counts = collections.Counter()
        for admin in self.specification["admins"]:
            text = httpx.get(f"http://127.0.0.1:{admin}/metrics").text
            for labels, value in re.findall(r"^tidemark_gateway_push_acks_total\{(.*)\} (\d+)$", text, re.MULTILINE):
                named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
                counts[named["by"], named["result"] in ("moved", "known")] += int(value)
        return counts


class Process:
    """A process of devices or workers that send acks (`push_worker.py`)."""

    def __init__(self, way, port, certificate):
        self.way = way
        worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "push_worker.py")
        # The process ends with its standard input, even if this one is killed.
        self.process = subprocess.Popen(
            [sys.executable, worker, way, str(port), certificate or "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.acks = []

    def begin(self, acks, token, cuts):
        self.acks = acks
        sent = [
            {name: value for name, value in ack.items() if name not in ("room", "row", "seq", "process")}
            for ack in acks
        ]
        self.process.stdin.write(json.dumps({"acks": sent, "token": token, "cuts": cuts}) + "\n")
        self.process.stdin.flush()

    def end(self):
        """Returns the acks with their answers."""
        line = self.process.stdout.readline()
        if not line:
            raise Fault(f"a process of {self.way} ended with {self.process.wait()}")
        return list(zip(self.acks, json.loads(line)))
