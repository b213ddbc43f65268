"""Reads a container file and runs its steps in directories, with chroot, without a container engine.

Supported: FROM image|stage AS name, RUN (shell form), COPY [--from=stage] [--chown=uid:gid] source... destination
with the context's .dockerignore, USER, WORKDIR, ENV, VOLUME, EXPOSE, STOPSIGNAL, HEALTHCHECK with options and CMD in
exec form, ENTRYPOINT and CMD in exec form, comments, and lines continued by a backslash.

Unsupported, and rejected by name: ADD, ARG, LABEL, SHELL, ONBUILD, MAINTAINER, here-documents, RUN in exec form or
with flags such as --mount, flags of COPY other than the two above, HEALTHCHECK NONE or in shell form, ENTRYPOINT and
CMD in shell form, variables outside of RUN, parser directives, and ** or character classes in .dockerignore.

Differences from an engine: a step has no layer of its own, and RUN uses this machine's network.
"""

import dataclasses
import fnmatch
import glob
import json
import os
import re
import resource
import shlex
import shutil
import subprocess


class ContainerFileError(Exception):
    """What the file says cannot be carried out here, with its line."""


@dataclasses.dataclass
class Step:
    line: int
    instruction: str
    text: str


@dataclasses.dataclass
class Stage:
    name: str
    base: str
    steps: list


@dataclasses.dataclass
class Settings:
    """What a stage says about how its programs run; a stage built on another starts with that one's."""

    user: str = "0:0"
    directory: str = "/"
    environment: dict = dataclasses.field(default_factory=dict)
    volumes: list = dataclasses.field(default_factory=list)
    ports: list = dataclasses.field(default_factory=list)
    stop_signal: str = "SIGTERM"
    health_check: list = None
    entrypoint: list = dataclasses.field(default_factory=list)
    command: list = dataclasses.field(default_factory=list)

    def copy(self):
        return dataclasses.replace(
            self, environment=dict(self.environment), volumes=list(self.volumes), ports=list(self.ports)
        )


INSTRUCTIONS = {
    "FROM",
    "RUN",
    "COPY",
    "USER",
    "WORKDIR",
    "ENV",
    "VOLUME",
    "EXPOSE",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}
HEALTH_CHECK_OPTIONS = {"interval", "timeout", "start-period", "retries"}


def parse(text):
    """The stages of a container file, in its order."""
    stages = []
    for line, instruction, rest in _logical_lines(text):
        if instruction not in INSTRUCTIONS:
            raise ContainerFileError(f"line {line}: {instruction} is not handled")
        if instruction == "FROM":
            match = re.fullmatch(r"(\S+)\s+AS\s+([a-z][a-z0-9-]*)", rest, re.IGNORECASE)
            if not match or "$" in rest:
                raise ContainerFileError(f"line {line}: FROM has to be `FROM image AS name`, without variables")
            if match[2] in [stage.name for stage in stages]:
                raise ContainerFileError(f"line {line}: there are two stages {match[2]}")
            stages.append(Stage(match[2], match[1], []))
            continue
        if not stages:
            raise ContainerFileError(f"line {line}: {instruction} before FROM")
        if instruction != "RUN" and "$" in rest:
            raise ContainerFileError(f"line {line}: variables are handled in RUN only")
        if instruction == "RUN" and (rest.startswith(("[", "--")) or "<<" in rest):
            raise ContainerFileError(f"line {line}: RUN is handled in shell form, without flags and here-documents")
        if not rest:
            raise ContainerFileError(f"line {line}: {instruction} of nothing")
        stages[-1].steps.append(Step(line, instruction, rest))
    # A wrong argument is found before the first step is taken.
    for stage in stages:
        settings = Settings()
        for step in stage.steps:
            if step.instruction == "COPY":
                _copy_arguments(step)
            elif step.instruction != "RUN":
                apply_setting(step, settings)
    return stages


def _logical_lines(text):
    number, start, gathered = 0, 0, ""
    for raw in text.split("\n"):
        number += 1
        line = raw.strip()
        if line.startswith("#"):
            if re.match(r"#\s*(syntax|escape|check)\s*=", line):
                raise ContainerFileError(f"line {number}: parser directives are not handled")
            continue
        if not line:
            continue
        if not gathered:
            start = number
        if line.endswith("\\"):
            gathered += line[:-1].rstrip() + " "
            continue
        gathered += line
        instruction, _, rest = gathered.partition(" ")
        yield start, instruction.upper(), rest.strip()
        gathered = ""
    if gathered:
        raise ContainerFileError(f"line {start}: continued past the end")


def apply_setting(step, settings):
    """Takes over an instruction that says something about programs that will run, and does nothing yet."""
    name, text = step.instruction, step.text
    if name == "USER":
        if not re.fullmatch(r"[a-z0-9_-]+(:[a-z0-9_-]+)?", text):
            raise ContainerFileError(f"line {step.line}: USER {text}")
        settings.user = text
    elif name == "WORKDIR":
        settings.directory = os.path.join(settings.directory, text)
    elif name == "ENV":
        for word in shlex.split(text):
            key, equals, value = word.partition("=")
            if not equals:
                raise ContainerFileError(f"line {step.line}: ENV has to be KEY=VALUE")
            settings.environment[key] = value
    elif name == "VOLUME":
        settings.volumes += _words(step) if text.startswith("[") else text.split()
    elif name == "EXPOSE":
        for port in text.split():
            if not re.fullmatch(r"\d+", port):
                raise ContainerFileError(f"line {step.line}: EXPOSE {port}: only TCP ports by number are handled")
            settings.ports.append(int(port))
    elif name == "STOPSIGNAL":
        settings.stop_signal = text
    elif name == "HEALTHCHECK":
        while text.startswith("--"):
            option, _, text = text.partition(" ")
            key = option[2:].partition("=")[0]
            if key not in HEALTH_CHECK_OPTIONS:
                raise ContainerFileError(f"line {step.line}: HEALTHCHECK {option} is not handled")
            text = text.strip()
        keyword, _, command = text.partition(" ")
        if keyword != "CMD":
            raise ContainerFileError(f"line {step.line}: HEALTHCHECK {keyword} is not handled")
        settings.health_check = _words(Step(step.line, name, command.strip()))
    elif name == "ENTRYPOINT":
        settings.entrypoint = _words(step)
        # As an engine does: what the base image would have passed along was meant for another program.
        settings.command = []
    elif name == "CMD":
        settings.command = _words(step)
    else:
        raise ContainerFileError(f"line {step.line}: {name} is not handled")


def _words(step):
    try:
        words = json.loads(step.text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ContainerFileError(f"line {step.line}: {step.instruction} is handled in exec form only: [\"a\", \"b\"]")
    return words


def _copy_arguments(step):
    stage, owner, words = None, None, shlex.split(step.text)
    while words and words[0].startswith("--"):
        flag, _, value = words.pop(0).partition("=")
        if flag == "--from":
            stage = value
        elif flag == "--chown" and re.fullmatch(r"\d+:\d+", value):
            owner = tuple(int(number) for number in value.split(":"))
        else:
            raise ContainerFileError(f"line {step.line}: COPY {flag}={value} is not handled")
    if len(words) < 2:
        raise ContainerFileError(f"line {step.line}: COPY needs a source and a destination")
    return stage, owner, words[:-1], words[-1]


class Ignored:
    """A .dockerignore: the last pattern that matches a path, or a folder it is in, decides."""

    def __init__(self, text):
        self.patterns = []
        for line in text.split("\n"):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            keeps, pattern = line.startswith("!"), line.lstrip("!").strip("/")
            if "**" in pattern or "[" in pattern or "\\" in pattern:
                raise ContainerFileError(f".dockerignore: {line} is not handled")
            self.patterns.append((keeps, pattern.split("/")))

    def __contains__(self, path):
        parts, ignored = path.split("/"), False
        for keeps, pattern in self.patterns:
            head = parts[: len(pattern)]
            if len(head) == len(pattern) and all(fnmatch.fnmatchcase(a, b) for a, b in zip(head, pattern)):
                ignored = not keeps
        return ignored


class Builder:
    """Carries stages out, each in a root of its own under `work`."""

    def __init__(self, stages, context, work, base, around, say):
        """`base(image, root)` fills a root directory with the image of that name and returns its Settings.
        `around(root)` is the context of a RUN, and returns additional environment variables. `say` logs each step.
        """
        self.stages = {stage.name: stage for stage in stages}
        self.context = context
        self.work = work
        self.base = base
        self.around = around
        self.say = say
        self.built = {}
        ignore_file = os.path.join(context, ".dockerignore")
        self.ignored = Ignored(open(ignore_file).read() if os.path.exists(ignore_file) else "")

    def root(self, name):
        return os.path.join(self.work, name)

    def build(self, name):
        """Builds a stage and those that it needs; returns its Settings."""
        if name in self.built:
            return self.built[name]
        stage = self.stages[name]
        if stage.base in self.stages:
            settings = self.build(stage.base).copy()
            self.say(f"{name}: FROM {stage.base}")
            # Nothing may be mounted inside at this time: it would be copied along.
            subprocess.run(["cp", "-a", "--reflink=auto", self.root(stage.base), self.root(name)], check=True)
        else:
            self.say(f"{name}: FROM {stage.base}")
            settings = self.base(stage.base, self.root(name))
        for step in stage.steps:
            if step.instruction == "COPY":
                stage_needed = _copy_arguments(step)[0]
                if stage_needed:
                    self.build(stage_needed)
            self.say(f"{name}: {step.instruction} {step.text}")
            if step.instruction == "RUN":
                self.run(name, settings, step)
            elif step.instruction == "COPY":
                self.copy(name, settings, step)
            else:
                apply_setting(step, settings)
                if step.instruction == "WORKDIR":
                    os.makedirs(self.inside(name, settings.directory), exist_ok=True)
        self.built[name] = settings
        return settings

    def inside(self, name, path):
        return os.path.join(self.root(name), path.lstrip("/"))

    def run(self, name, settings, step):
        log = os.path.join(self.work, name + ".run.log")
        with self.around(self.root(name)) as machine, open(log, "a") as output:
            here = settings.copy()
            here.environment = {**machine, **settings.environment}
            line = ["/bin/sh", "-c", step.text]
            process = start(self.root(name), here, line, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            while True:
                try:
                    code = process.wait(timeout=30)
                    break
                except subprocess.TimeoutExpired:
                    self.say(f"{name}: … {_last_lines(log, 1).strip()}")
        if code != 0:
            raise ContainerFileError(f"line {step.line}: RUN ended with {code}:\n{_last_lines(log, 40)}")

    def copy(self, name, settings, step):
        stage, owner, sources, destination = _copy_arguments(step)
        top = self.root(stage) if stage else self.context
        found = []
        for source in sources:
            matches = sorted(glob.glob(os.path.join(top, source.lstrip("/"))))
            matches = [path for path in matches if stage or os.path.relpath(path, top) not in self.ignored]
            # A pattern may match nothing, a name may not.
            if not matches and "*" not in source:
                raise ContainerFileError(f"line {step.line}: COPY {source}: there is no such file")
            found += matches
        is_folder = destination.endswith("/")
        if len(found) != 1 and not is_folder:
            raise ContainerFileError(f"line {step.line}: COPY of several files needs a destination that ends in /")
        target = self.inside(name, os.path.join(settings.directory, destination))
        for path in found:
            if os.path.isdir(path):
                self.copy_folder(path, target, None if stage else top)
            else:
                os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
                shutil.copy2(path, target)
                os.chown(os.path.join(target, os.path.basename(path)) if is_folder else target, 0, 0)
        if owner:
            subprocess.run(["chown", "-R", "%d:%d" % owner, target], check=True)

    def copy_folder(self, path, target, context):
        """What is in the folder, not the folder: that is what COPY does."""

        def left_out(folder, names):
            if context is None:
                return []
            return [name for name in names if os.path.relpath(os.path.join(folder, name), context) in self.ignored]

        shutil.copytree(path, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", "0:0", target], check=True)


def start(root, settings, words, descriptors=None, **options):
    """Starts a program inside a root, as the user that the settings name, with their environment and nothing else.

    `descriptors` is the limit of open ones; without it, the limit stays this process's."""
    uid, gid, home = _user(root, settings.user)
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        **settings.environment,
    }
    drop = []
    if uid != 0:
        # As the compose file asks for: no capability, and none to be had by running another program.
        drop = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]

    def enter():
        if descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        os.chroot(root)
        os.chdir(settings.directory)

    # setpriv runs inside: it is part of every Debian root.
    line = ["/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *drop, *words]
    return subprocess.Popen(line, env=environment, preexec_fn=enter, **options)


def _user(root, user):
    name, _, group = user.partition(":")
    users = {row[0]: row for row in _rows(os.path.join(root, "etc/passwd"))}
    groups = {row[0]: row for row in _rows(os.path.join(root, "etc/group"))}
    if name.isdigit():
        entry = next((row for row in users.values() if row[2] == name), None)
        uid = int(name)
    elif name in users:
        entry = users[name]
        uid = int(entry[2])
    else:
        raise ContainerFileError(f"USER {user}: the root has no such user")
    home = entry[5] if entry else "/"
    if group:
        if not group.isdigit() and group not in groups:
            raise ContainerFileError(f"USER {user}: the root has no such group")
        return uid, int(group) if group.isdigit() else int(groups[group][2]), home
    return uid, int(entry[3]) if entry else 0, home


def _last_lines(path, count):
    with open(path, errors="replace") as file:
        return "".join(file.readlines()[-count:])


def _rows(path):
    with open(path) as file:
        return [line.rstrip("\n").split(":") for line in file if line.strip()]


def describe(stages):
    """For tests: what each stage of a file says, without carrying anything out."""
    described = {}
    for stage in stages:
        settings = described[stage.base].copy() if stage.base in described else Settings()
        for step in stage.steps:
            if step.instruction not in ("RUN", "COPY"):
                apply_setting(step, settings)
        described[stage.name] = settings
    return {name: dataclasses.asdict(settings) for name, settings in described.items()}
