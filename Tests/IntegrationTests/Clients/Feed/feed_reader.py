"""Reads one partition of the feed with httpx: each record goes to a file before it is committed.

feed_reader.py FILE TOKEN CONSUMER PARTITION PORT...: tries the gateways in turn, until it is killed."""
import itertools, json, sys, time
import httpx

file, token, consumer, partition, ports = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]
headers = {"authorization": f"Bearer {token}"}
records = open(file, "a")

for port in itertools.cycle(ports):
    try:
        client = httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30)
        with client, client.stream("GET", f"/v1/feed?consumer={consumer}&partition={partition}") as stream:
            if stream.status_code != 200:
                time.sleep(0.2)
                continue
            epoch, count = None, 0
            for line in stream.iter_lines():
                record = json.loads(line)
                kind = record["type"]
                if kind == "lease":
                    epoch = record["epoch"]
                elif kind in ("lease_lost", "error"):
                    break
                else:
                    records.write(line + "\n")
                    records.flush()
                    count += 1
                    # A commit covers what is in the file.
                    if count % 20 == 0 or kind == "heartbeat":
                        body = {"partition": partition, "cursor": record["cursor"], "epoch": epoch}
                        client.post(f"/v1/feed/consumers/{consumer}/commit", json=body)
    except (httpx.HTTPError, OSError):
        time.sleep(0.1)
