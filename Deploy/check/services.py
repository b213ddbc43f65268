"""Runs the services of a compose file in root directories, each at its own loopback address, as an engine would: user,
command, environment, secrets, volumes, read-only root, limits, stop signal, health check.

Differences from an engine: all services share one network. So 0.0.0.0 in a command, and 127.0.0.1 in a health check,
become the service's own address, and each subnet in an environment becomes 127.0.0.0/8. Keys of a service that are in
neither KEYS_CARRIED_OUT nor KEYS_LEFT_TO_THE_ENGINE are rejected.
"""

import os
import re
import resource
import signal
import socket
import subprocess
import time

from containerfile import start

KEYS_CARRIED_OUT = {
    "image", "build", "command", "environment", "secrets", "volumes", "read_only", "ulimits", "stop_signal",
    "stop_grace_period", "healthcheck", "depends_on",
}
# All programs run without capabilities and privileges here, and in one network. No program is restarted, so that a
# crash is detected. The services of every profile run.
KEYS_LEFT_TO_THE_ENGINE = {"cap_drop", "security_opt", "restart", "networks", "ports", "profiles"}
HEALTHY_WITHIN_SECONDS = 60


class ServiceError(Exception):
    """A service did not do what the files promise."""


def seconds(text):
    parts = re.findall(r"(\d+)(h|ms|m|s)", str(text))
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for number, unit in parts)


class Composition:
    def __init__(self, compose, package, work, secrets, builder, make_image, say):
        self.services = compose["services"]
        self.secret_files = compose["secrets"]
        self.subnets = [
            entry["subnet"]
            for network in compose["networks"].values()
            for entry in (network or {}).get("ipam", {}).get("config", [])
        ]
        self.package = package
        self.work = work
        self.secrets = secrets
        self.builder = builder
        self.make_image = make_image
        self.say = say
        self.addresses = {name: f"127.0.0.{10 + index}" for index, name in enumerate(sorted(self.services))}
        self.roots = {}
        self.settings = {}
        self.processes = {}
        for name, service in self.services.items():
            unknown = set(service) - KEYS_CARRIED_OUT - KEYS_LEFT_TO_THE_ENGINE
            if unknown:
                raise ServiceError(f"{name}: {', '.join(sorted(unknown))}: this check does not carry that out")

    # Roots

    def prepare(self):
        """A root for each service, mounted together from the image, its secrets and volumes; and one for the tools."""
        for name, service in self.services.items():
            build = service.get("build")
            if build:
                image, settings = self.builder.root(build["target"]), self.builder.built[build["target"]]
            else:
                image = os.path.join(self.work, "image-" + name)
                settings = self.make_image(service["image"], image)
            settings = settings.copy()
            settings.environment.update(
                {key: self.shared_network(value) for key, value in (service.get("environment") or {}).items()}
            )
            settings.stop_signal = service.get("stop_signal", settings.stop_signal)
            if "command" in service:
                settings.command = [word.replace("0.0.0.0", self.addresses[name]) for word in service["command"]]
            secrets = [entry["source"] for entry in service.get("secrets", [])]
            self.mount(name, image, settings, secrets, service.get("volumes", []), service.get("read_only", False))
        self.mount("tools", self.builder.root("tools"), self.builder.built["tools"].copy(), ["jwt-secret"], [], False)

    def shared_network(self, value):
        """A value of the environment, with the shared network in place of the compose file's subnets."""
        value = str(value)
        for subnet in self.subnets:
            value = value.replace(subnet, "127.0.0.0/8")
        return value

    def mount(self, name, image, settings, secrets, volumes, is_read_only):
        root = os.path.join(self.work, "run", name)
        os.makedirs(root)
        # Mount points must exist before the root becomes read-only.
        hosts = os.path.join(self.work, "hosts")
        with open(hosts, "w") as file:
            file.write("127.0.0.1 localhost\n")
            file.writelines(f"{address} {other}\n" for other, address in self.addresses.items())
        sources = [(hosts, "/etc/hosts", True)]
        volumes = [volume.split(":") for volume in volumes]
        for source, target, *options in volumes:
            if not source.startswith("/"):
                source = self.named_volume(source, os.path.join(image, target.lstrip("/")))
            sources.append((source, target, "ro" in options))
        for target in settings.volumes:
            if target not in [volume[1] for volume in volumes]:
                raise ServiceError(f"{name}: the image's volume {target} has no name in the compose file")
        for source, target, _ in sources:
            place = os.path.join(image, target.lstrip("/"))
            if os.path.isdir(source):
                os.makedirs(place, exist_ok=True)
            elif not os.path.exists(place):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                open(place, "w").close()
        self.run("mount", "--rbind", image, root)
        if is_read_only:
            self.run("mount", "-o", "remount,ro,bind", root)
        self.run("mount", "-t", "proc", "proc", root + "/proc")
        for source, target, cannot_be_written in sources:
            self.run("mount", "--bind", source, root + target)
            if cannot_be_written:
                self.run("mount", "-o", "remount,ro,bind", root + target)
        self.run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", root + "/run")
        os.mkdir(root + "/run/secrets")
        for secret in secrets:
            # The file of Deploy/service-secrets.sh, with its owner and mode, under its name in the compose file.
            place = f"{root}/run/secrets/{secret}"
            open(place, "w").close()
            source = os.path.join(self.secrets, os.path.basename(self.secret_files[secret]["file"]))
            self.run("mount", "--bind", source, place)
        self.run("mount", "-o", "remount,ro", root + "/run")
        self.roots[name], self.settings[name] = root, settings

    def named_volume(self, volume, place_in_image):
        """A new volume takes over content, owner and mode of the place in the image that it is mounted at."""
        path = os.path.join(self.work, "volumes", volume)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.run("cp", "-a", place_in_image, path)
        return path

    def run(self, *words):
        subprocess.run(words, check=True)

    # Processes

    def start_all(self):
        """In the order of depends_on, each when those that it waits for are healthy."""
        waiting = dict(self.services)
        while waiting:
            free = [name for name, service in waiting.items() if not set(service.get("depends_on", {})) & set(waiting)]
            if not free:
                raise ServiceError(f"{', '.join(waiting)} wait for each other")
            for name in free:
                for other, how in waiting.pop(name).get("depends_on", {}).items():
                    if how["condition"] == "service_healthy":
                        self.wait_until_healthy(other)
                self.start(name)
        self.wait_until_reachable("haproxy", "127.0.0.1", 8443)

    def start(self, name):
        settings = self.settings[name]
        line = settings.entrypoint + settings.command
        limit = (self.services[name].get("ulimits") or {}).get("nofile")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with open(self.log(name), "a") as log:
            try:
                self.processes[name] = start(
                    self.roots[name],
                    settings,
                    line,
                    descriptors=limit,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except subprocess.SubprocessError:
                raise ServiceError(
                    f"{name} cannot be given {limit} descriptors: this machine's limit is {hard}"
                ) from None
        self.say(f"{name}: as {settings.user}, {' '.join(line)}")

    def stop(self, name):
        """By its stop signal, within its grace; it has to end well."""
        process = self.processes.pop(name)
        if process.poll() is not None:
            raise ServiceError(f"{name} ended by itself with {process.returncode}{self.tail(name)}")
        process.send_signal(getattr(signal, self.settings[name].stop_signal))
        grace = seconds(self.services[name]["stop_grace_period"])
        try:
            code = process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"{name} did not end within {grace:.0f} s{self.tail(name)}") from None
        if code != 0:
            raise ServiceError(f"{name} ended with {code}{self.tail(name)}")
        self.say(f"{name}: ended after {self.settings[name].stop_signal}")

    def once(self, name, words):
        """Runs a program to its end; returns what it printed."""
        process = start(
            self.roots[name], self.settings[name], words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        out = process.communicate(timeout=300)[0]
        if process.returncode != 0:
            raise ServiceError(f"{' '.join(words)} ended with {process.returncode} in {name}:\n{out}{self.tails()}")
        return out

    def health_check(self, name, words):
        """A health check's command, without CMD; returns whether it ended with 0, and what it said."""
        words = [word.replace("127.0.0.1", self.addresses[name]) for word in words]
        process = start(
            self.roots[name], self.settings[name], words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        out = process.communicate(timeout=60)[0]
        return process.returncode == 0, out.strip()

    def wait_until_healthy(self, name):
        kind, *words = self.services[name]["healthcheck"]["test"]
        if kind != "CMD":
            raise ServiceError(f"{name}: a health check has to be CMD: the image has no use for a shell")
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while True:
            if self.processes[name].poll() is not None:
                raise ServiceError(f"{name} ended with {self.processes[name].returncode}{self.tail(name)}")
            is_healthy, said = self.health_check(name, words)
            if is_healthy:
                return self.say(f"{name}: healthy, {said}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{name} is not healthy: {said}{self.tail(name)}")
            time.sleep(0.2)

    def wait_until_reachable(self, name, address, port):
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while True:
            try:
                return socket.create_connection((address, port), timeout=5).close()
            except OSError as error:
                if self.processes[name].poll() is not None or time.monotonic() > deadline:
                    raise ServiceError(f"{name}: {address}:{port}: {error}{self.tail(name)}") from None
            time.sleep(0.1)

    def check_image_promises(self, name):
        """What the container file says beside the command: its own health check, and the ports that it exposes."""
        settings = self.settings[name]
        is_healthy, said = self.health_check(name, settings.health_check)
        if not is_healthy:
            raise ServiceError(f"{name}: the image's HEALTHCHECK says {said}")
        for port in settings.ports:
            self.wait_until_reachable(name, self.addresses[name], port)
        uid = os.stat(f"/proc/{self.processes[name].pid}").st_uid
        if uid == 0:
            raise ServiceError(f"{name} runs as root")
        self.say(f"{name}: HEALTHCHECK says {said}; listens on {', '.join(map(str, settings.ports))}; runs as {uid}")

    # Logs

    def log(self, name):
        return os.path.join(self.work, name + ".log")

    def tail(self, name):
        if not os.path.exists(self.log(name)):
            return ""
        with open(self.log(name), errors="replace") as file:
            return f"\nthe last lines of {name}:\n" + "".join(file.readlines()[-10:])

    def tails(self):
        return "".join(self.tail(name) for name in self.services)
