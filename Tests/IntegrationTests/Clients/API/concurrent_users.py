"""Users join, leave, hide, show and are erased concurrently through several gateways; then the script
compares the expected state.

usage: concurrent_users.py PORTS SERVER_TOKEN USERS CHANNELS ROUNDS SEED    (PORTS: gateways, with commas)

Each user's commands are sequential, and each is retried until it is acknowledged. The users run concurrently
in the same channels. In the end every channel, every user's index and every user's settings must match the
last acknowledged commands.
"""
import asyncio, random, sys
import httpx

ports, token = sys.argv[1].split(","), sys.argv[2]
users, channels, rounds, seed = (int(argument) for argument in sys.argv[3:7])
headers = {"authorization": "Bearer " + token}
cids = [f"messaging:crowd-{n}" for n in range(channels)]
retried = 0


class Client:
    """Sends requests to any of the gateways until they are answered."""

    def __init__(self, name):
        self.generator = random.Random(f"{seed} {name}")
        self.clients = [
            httpx.AsyncClient(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers)
            for port in ports
        ]

    async def ask(self, method, path, good=(200,), **arguments):
        global retried
        last = None
        for _ in range(300):
            try:
                last = await self.generator.choice(self.clients).request(method, path, **arguments)
                if last.status_code in good:
                    return last
                if last.status_code != 503:
                    sys.exit(f"{method} {path} {arguments} answered {last.status_code} {last.text}")
                retried += 1
            except httpx.TransportError as error:
                last = error
            await asyncio.sleep(0.02)
        sys.exit(f"{method} {path} was not answered in 300 tries: {last!r}")

    async def all(self, path, name):
        """All pages of a list."""
        found, cursor = [], ""
        while True:
            page = (await self.ask("GET", f"{path}?limit=3{cursor}")).json()
            found += page[name]
            if "next" not in page:
                return found
            cursor = "&cursor=" + page["next"]


class User:
    def __init__(self, number):
        self.id = f"crowd.user-{number}"
        self.client = Client(self.id)
        self.member = {cid: False for cid in cids}
        self.shows = {"read_receipts": True, "delivery_receipts": True}
        self.erasures = 0

    async def live(self):
        generator = random.Random(f"{seed} life of {self.id}")
        for _ in range(rounds):
            choice = generator.random()
            cid = generator.choice(cids)
            if choice < 0.40:
                await self.client.ask("POST", f"/v1/channels/{cid}/members", json={"add": [self.id]})
                self.member[cid] = True
            elif choice < 0.65:
                await self.client.ask("POST", f"/v1/channels/{cid}/members", json={"remove": [self.id]})
                self.member[cid] = False
            elif choice < 0.85:
                kind = generator.choice(sorted(self.shows))
                self.shows[kind] = generator.random() < 0.5
                body = {"privacy_settings": {kind: {"enabled": self.shows[kind]}}}
                await self.client.ask("PUT", f"/v1/users/{self.id}", json=body)
            elif choice < 0.95:
                # The sender may be a non-member: the backend sends for the user.
                await self.client.ask(
                    "POST",
                    f"/v1/channels/{cid}/messages",
                    good=(200, 201),
                    json={"id": f"{self.id}-{generator.randrange(1_000_000)}", "user_id": self.id},
                )
            else:
                await self.client.ask("DELETE", f"/v1/users/{self.id}")
                self.member = {cid: False for cid in cids}
                self.shows = {"read_receipts": True, "delivery_receipts": True}
                self.erasures += 1
            if generator.random() < 0.2:
                await self.check_index()

    async def check_index(self):
        found = [entry["cid"] for entry in await self.client.all(f"/v1/users/{self.id}/channels", "channels")]
        expected = sorted(cid for cid, is_member in self.member.items() if is_member)
        if sorted(found) != expected:
            sys.exit(f"{self.id}: the index has {sorted(found)}, acknowledged is {expected}")

    async def check(self):
        await self.check_index()
        settings = (await self.client.ask("GET", f"/v1/users/{self.id}")).json()["privacy_settings"]
        found = {kind: settings[kind]["enabled"] for kind in self.shows}
        if found != self.shows:
            sys.exit(f"{self.id}: settings are {found}, acknowledged is {self.shows}")


async def main():
    client = Client("the backend")
    for cid in cids:
        await client.ask("PUT", f"/v1/channels/{cid}", good=(200, 201), json={"members": ["crowd.stays"]})
    crowd = [User(number) for number in range(users)]
    await asyncio.gather(*(user.live() for user in crowd))
    for cid in cids:
        rows = await client.all(f"/v1/channels/{cid}/read-state", "read")
        found = sorted(row["user"]["id"] for row in rows)
        expected = sorted(["crowd.stays"] + [user.id for user in crowd if user.member[cid]])
        if found != expected:
            sys.exit(f"{cid}: its members are {found}, acknowledged is {expected}")
    for user in crowd:
        await user.check()
    erasures = sum(user.erasures for user in crowd)
    print(f"ok {users} users, {users * rounds} commands, {erasures} erasures, {retried} answers retried")


asyncio.run(main())
