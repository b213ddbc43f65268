"""Many users are erased at once while channels are continuously made and deleted; every erasure must be
answered 200.

usage: erasures_beside_deletions.py PORT SERVER_TOKEN USERS CHURNERS
"""
import asyncio, sys
import httpx

port, token = sys.argv[1:3]
users, churners = (int(argument) for argument in sys.argv[3:5])
headers = {"authorization": "Bearer " + token}
# How many times one request may be refused as too many: some minutes.
BUSY_LIMIT = 10_000


def client():
    # The gateway's own limit is below this one.
    return httpx.AsyncClient(
        http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers)


async def ask(asker, method, path, good, **arguments):
    # A gateway limits concurrent erasures; a refused one has changed nothing.
    for _ in range(BUSY_LIMIT):
        answer = await asker.request(method, path, **arguments)
        if answer.status_code != 503 or answer.json()["code"] != "store_busy":
            break
        await asyncio.sleep(0.02)
    if answer.status_code not in good:
        sys.exit(f"{method} {path} answered {answer.status_code} {answer.text}")
    return answer


async def churn(number, ended):
    """Makes and deletes channels, most likely in all shards."""
    rounds = 0
    async with client() as asker:
        while not ended.is_set():
            cid = f"messaging:churn-{number}-{rounds}"
            await ask(asker, "PUT", f"/v1/channels/{cid}", (201,), json={"members": ["churn.stays"]})
            await ask(asker, "DELETE", f"/v1/channels/{cid}", (200,))
            rounds += 1
    return rounds


async def main():
    names = [f"erased.user-{number}" for number in range(users)]
    cids = [f"messaging:kept-{number}" for number in range(6)]
    async with client() as asker:
        for cid in cids:
            members = ["erased.stays"] + names
            await ask(asker, "PUT", f"/v1/channels/{cid}", (201,), json={"members": members})
            for name in names[::4]:
                message = {"id": f"m-{name}", "user_id": name}
                await ask(asker, "POST", f"/v1/channels/{cid}/messages", (201,), json=message)
        ended = asyncio.Event()
        churning = [asyncio.create_task(churn(number, ended)) for number in range(churners)]
        erasing = [ask(asker, "DELETE", f"/v1/users/{name}", (200,)) for name in names]
        for answer, name in zip(await asyncio.gather(*erasing), names):
            if answer.json() != {"user_id": name, "erased": True}:
                sys.exit(f"{name}: {answer.text}")
        ended.set()
        deletions = sum(await asyncio.gather(*churning))
        for cid in cids:
            rows = (await ask(asker, "GET", f"/v1/channels/{cid}/read-state", (200,))).json()["read"]
            if [row["user"]["id"] for row in rows] != ["erased.stays"]:
                sys.exit(f"{cid}: its members are {rows}")
    if deletions < churners:
        sys.exit(f"only {deletions} channels were deleted meanwhile")
    print(f"ok {users} users erased beside {deletions} deletions")


asyncio.run(main())
