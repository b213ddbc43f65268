"""Adds and removes one member through two gateways in turn, and prints the expected end state.

usage: membership.py PORT_A PORT_B SERVER_TOKEN CID USER ROUNDS SEED

Each command is retried until it is acknowledged. After each one the membership must match it. This finds
commands that are lost after their acknowledgement, and older commands that are applied late.
"""
import random, sys, time
import httpx

ports, token, cid, user, rounds, seed = (
    sys.argv[1:3],
    sys.argv[3],
    sys.argv[4],
    sys.argv[5],
    int(sys.argv[6]),
    int(sys.argv[7]),
)
generator = random.Random(seed)
clients = [httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=15) for port in ports]
headers = {"authorization": "Bearer " + token}


def ask(method, path, **arguments):
    for _ in range(200):
        try:
            answer = generator.choice(clients).request(method, path, headers=headers, **arguments)
            if answer.status_code != 503:
                return answer
            retried[0] += 1
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    sys.exit(f"{method} {path} was not answered in 200 tries")


retried = [0]
member = False
for n in range(rounds):
    member = generator.random() < 0.5
    body = {"add": [user]} if member else {"remove": [user]}
    answer = ask("POST", f"/v1/channels/{cid}/members", json=body)
    if answer.status_code != 200:
        sys.exit(f"round {n}: {body} answered {answer.status_code} {answer.text}")
    state = ask("GET", f"/v1/channels/{cid}/read-state")
    present = user in [row["user"]["id"] for row in state.json()["read"]]
    if present != member:
        sys.exit(f"round {n}: after {body} was acknowledged the user is {'' if present else 'not '}a member")
print(f"ok {rounds} rounds, {retried[0]} answers retried, ends as {'member' if member else 'no member'}")
