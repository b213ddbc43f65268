"""Deploy/check/deploy-check.sh's own process: builds the images' roots, then runs the compose file's services in them.

It is the first process of a process namespace, and its mounts are seen by nobody else.
"""

import argparse
import base64
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import time

import yaml

import containerfile
import machine
from containerfile import ContainerFileError, Settings
from machine import MachineError
from services import Composition, ServiceError

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = ["tidemark-store", "tidemark-gateway", "tidemark-worker", "tidemark"]
# The final stages, with the programs that they contain.
STAGES = {"store": PROGRAMS[:1], "gateway": PROGRAMS[1:2], "worker": PROGRAMS[2:3], "tools": PROGRAMS}
# The endpoint of the worker's webhook.
ENDPOINT = ("127.0.0.1", 8090)
STARTED = time.monotonic()


def say(line):
    print(f"[{int(time.monotonic() - STARTED):4} s] {line}", flush=True)


class Images:
    """Stands in for a registry: a root for the name of an image."""

    def __init__(self, work):
        self.work = work

    def make(self, image, root):
        match = re.fullmatch(r"([a-z]+):(\S*?)-?(bookworm|trixie)(-slim)?", image)
        if not match or match[1] not in ("debian", "swift", "haproxy"):
            raise MachineError(f"{image}: there is no stand-in for this image")
        kind, version, codename = match[1], match[2], match[3]
        base = os.path.join(self.work, f"base-{codename}")
        if not os.path.exists(base):
            say(f"a clean root of Debian {codename}, by debootstrap")
            machine.make_base(codename, base)
        subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
        return getattr(self, kind)(version, root)

    def debian(self, version, root):
        return Settings()

    def swift(self, version, root):
        here = machine.ask("swift", "--version")
        found = re.search(r"Swift version (\d+\.\d+)", here)
        if not found or found[1] != version:
            raise MachineError(f"the container file wants Swift {version}, this machine has:\n{here}")
        machine.install(root, machine.SWIFT_IMAGE_PACKAGES)
        path = machine.lend_toolchain(root)
        return Settings(environment={"PATH": f"{path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})

    def haproxy(self, version, root):
        machine.install(root, ["haproxy"])
        found = re.search(r"version (\d+\.\d+)", machine.ask("chroot", root, "/usr/sbin/haproxy", "-v"))
        if not found or found[1] != version:
            raise MachineError(f"the compose file wants HAProxy {version}, Debian has {found and found[1]}")
        # The public image's user, command and stop signal.
        return Settings(
            user="99:99",
            entrypoint=["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"],
            stop_signal="SIGUSR1",
        )


def build(arguments, images):
    """All final stages; returns the Builder that knows their roots and Settings."""
    path = os.path.join(PACKAGE, "Deploy/Dockerfile")
    stages = containerfile.parse(open(path).read())
    builder = containerfile.Builder(stages, PACKAGE, arguments.work, images.make, machine.running, say)
    if arguments.prebuilt:
        say(f"build: left out; the programs are those in {arguments.prebuilt}")
        out = builder.inside("build", "/out")
        os.makedirs(out)
        for program in PROGRAMS:
            shutil.copy2(os.path.join(arguments.prebuilt, program), out)
        builder.built["build"] = Settings()
    for name in STAGES:
        builder.build(name)
    return builder


def examine(builder, lent):
    """The programs stand on the runtime's own packages, and nothing that could download is inside."""
    for name, programs in STAGES.items():
        root = builder.root(name)
        for program in programs:
            libraries = machine.ask("chroot", root, "ldd", f"/usr/local/bin/{program}")
            if "not found" in libraries:
                raise MachineError(f"{program} misses libraries in the {name} image:\n{libraries}")
            if "libswift" in libraries and not lent:
                raise MachineError(f"{program} wants Swift's own libraries:\n{libraries}")
            size = os.path.getsize(os.path.join(root, "usr/local/bin", program))
            say(f"{name}: {program} has {size / 1e6:.0f} MB; every library is there")
        if builder.built[name].user.split(":")[0] in ("0", "root"):
            raise MachineError(f"the {name} image runs as root")
        for tool in ["curl", "wget", "swift"]:
            if os.path.exists(os.path.join(root, "usr/bin", tool)):
                raise MachineError(f"{tool} is inside the {name} image")


def enter_network_of_our_own():
    """From here on there is loopback and nothing else: whatever works, works without the machine and the world."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newnet = 0x40000000
    if libc.unshare(clone_newnet) != 0:
        raise MachineError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def write_tasks(path):
    """A tasks file as an operator writes it, with one webhook."""
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    webhook = {
        "name": "check", "url": "http://%s:%d/" % ENDPOINT, "secrets": [secret], "allow_http": True,
        "allow_private": True,
    }
    with open(path, "w") as file:
        yaml.safe_dump({"webhooks": [webhook]}, file)


def start_endpoint(log):
    """Starts the endpoint of the webhook, which writes the types of the records to a file."""
    script = os.path.join(PACKAGE, "Deploy/check/endpoint.py")
    with open(log, "w") as output:
        subprocess.Popen([sys.executable, script, ENDPOINT[0], str(ENDPOINT[1])], stdout=output)


def call(composition, certificate, token, method, path, body=None, status=200):
    """One request by curl, through HAProxy."""
    line = [
        "curl",
        "-sS",
        "--max-time",
        "20",
        "--http2",
        "--cacert",
        certificate,
        "-X",
        method,
        "-w",
        "\n%{http_version} %{http_code}",
    ]
    line += ["-H", f"authorization: Bearer {token}", f"https://localhost:8443{path}"]
    if body is not None:
        line += ["-H", "content-type: application/json", "--data-binary", json.dumps(body)]
    done = subprocess.run(line, capture_output=True, text=True)
    answer, _, last = done.stdout.rpartition("\n")
    if done.returncode != 0 or last != f"2 {status}":
        raise ServiceError(f"{method} {path}: {last}, not 2 {status}: {answer}{done.stderr}{composition.tails()}")
    return json.loads(answer)


def use(composition, secrets, deliveries):
    """A receipt through the whole of it, by way of what the images hold."""
    certificate = os.path.join(secrets, "haproxy.crt")

    def token(*words):
        return composition.once(
            "tools", ["tidemark", "token", "--jwt-secret-file", "/run/secrets/jwt-secret", *words]
        ).strip()

    server, alice, bob = token("--server"), token("--user", "alice"), token("--user", "bob")
    channel = "/v1/channels/messaging:check"

    def status():
        return call(composition, certificate, alice, "GET", f"{channel}/messages/m1/status")["status"]

    call(composition, certificate, server, "PUT", channel, {"members": ["alice", "bob"]}, 201)
    call(composition, certificate, server, "POST", f"{channel}/messages", {"id": "m1", "user_id": "alice"}, 201)
    before = status()
    call(composition, certificate, bob, "POST", f"{channel}/read", {"message_id": "m1"})
    after = status()
    if (before, after) != ("sent", "read"):
        raise ServiceError(f"the message went from {before} to {after}")
    say("a receipt went through HAProxy, gateway and store and back: sent, then read")
    deadline = time.monotonic() + 30
    while "read" not in open(deliveries).read().split():
        if time.monotonic() > deadline:
            raise ServiceError(f"the webhook was not sent the record{composition.tails()}")
        time.sleep(0.1)
    say("the worker has delivered its record to the webhook")

    composition.stop("gateway-1")
    for _ in range(4):
        if status() != "read":
            raise ServiceError("the status changed when a gateway drained")
    say("gateway-1 has drained and ended; gateway-2 answers")

    composition.stop("store")
    composition.start("store")
    composition.wait_until_healthy("store")
    composition.wait_until_healthy("gateway-2")
    composition.start("gateway-1")
    composition.wait_until_healthy("gateway-1")
    if status() != "read":
        raise ServiceError("the receipt is not in the volume any more")
    say("store and gateway-1 were started again; the receipt is still there, from the volume")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--prebuilt")
    arguments = parser.parse_args()
    images = Images(arguments.work)
    text = machine.ask("docker-compose", "--file", os.path.join(PACKAGE, "docker-compose.yml"), "config")
    say("docker-compose accepts docker-compose.yml")

    builder = build(arguments, images)
    # Programs that were built elsewhere may be linked with the toolchain's libraries.
    lent = [machine.toolchain()] if arguments.prebuilt else []
    for name in STAGES:
        for folder in lent:
            machine.lend_folder(builder.root(name), folder)
    examine(builder, lent)

    secrets = os.path.join(arguments.work, "secrets")
    os.mkdir(secrets)
    write_tasks(os.path.join(secrets, "tasks.yaml"))
    subprocess.run([os.path.join(PACKAGE, "Deploy/service-secrets.sh"), secrets], check=True, stdout=subprocess.DEVNULL)
    compose = yaml.safe_load(text)
    # As the compose file's comment says: the worker needs the feed.
    compose["services"]["store"]["command"].append("--feed-retention=24h,1GiB")
    composition = Composition(compose, PACKAGE, arguments.work, secrets, builder, images.make, say)
    composition.prepare()
    enter_network_of_our_own()

    deliveries = os.path.join(arguments.work, "deliveries")
    start_endpoint(deliveries)
    composition.start_all()
    composition.wait_until_healthy("worker")
    for name in ["store", "gateway-1", "gateway-2", "worker"]:
        composition.check_image_promises(name)
    use(composition, secrets, deliveries)
    demo = composition.once("tools", ["tidemark", "demo", "--speed", "0"])
    say("tidemark demo, in the tools image, as its user: " + demo.strip().split("\n")[-1])
    for name in ["worker", "haproxy", "gateway-1", "gateway-2", "store"]:
        composition.stop(name)
    say("deploy-check: passed")


try:
    main()
except (ContainerFileError, MachineError, ServiceError) as error:
    sys.exit(f"deploy-check: {error}")
except subprocess.CalledProcessError as error:
    sys.exit(f"deploy-check: {' '.join(error.cmd)} ended with {error.returncode}\n{error.stderr or ''}")
