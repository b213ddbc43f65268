"""What a root directory uses of this machine: its package mirror, Swift toolchain and access to Swift packages.

All of it is detected, so that the check works on every machine that can build the programs.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.parse

# Packages of the public Swift image that a build of these programs may use. The image has more, so a build that
# succeeds here succeeds there.
SWIFT_IMAGE_PACKAGES = [
    "binutils", "ca-certificates", "gcc", "git", "libc6-dev", "libcurl4-openssl-dev", "libedit2", "libncurses6",
    "libpython3.11", "libsqlite3-0", "libstdc++-12-dev", "libxml2-dev", "pkg-config", "tzdata", "zlib1g-dev",
]


class MachineError(Exception):
    """The machine lacks something, in one line."""


def ask(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def apt_sources(codename):
    """Lines of a sources.list for that release, from this machine's own, the release itself first."""
    targets = ask("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    lines = []
    for line in targets.split("\n"):
        uri, _, rest = line.partition(" ")
        release, _, component = rest.partition(" ")
        if release == codename or release.startswith(codename + "-"):
            entry = f"deb {uri} {release} {component}"
            if entry not in lines:
                lines.append(entry)
    lines.sort(key=lambda line: line.split()[2] != codename)
    if not lines or lines[0].split()[2] != codename:
        raise MachineError(f"this machine's package sources do not have Debian {codename}")
    return lines


def make_base(codename, root):
    """A clean root: what Debian's own image of that release is made from."""
    sources = apt_sources(codename)
    mirror = sources[0].split()[1]
    log = root + ".log"
    with open(log, "w") as file:
        done = subprocess.run(["debootstrap", "--variant=minbase", codename, root, mirror], stdout=file, stderr=file)
    if done.returncode != 0:
        tail = "".join(open(log).readlines()[-10:])
        raise MachineError(f"debootstrap ended with {done.returncode}:\n{tail}")
    write(root, "etc/apt/sources.list", "\n".join(sources) + "\n")
    settings = [
        line for line in ask("apt-config", "dump").split("\n") if re.match(r"Acquire::(https?|Check|Retries)", line)
    ]
    write(root, "etc/apt/apt.conf.d/90machine", "\n".join(settings) + "\n")
    # As in the images: packages do not start services while they are installed.
    write(root, "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
    # Name service is the machine's, which an engine sees to as well.
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))


def write(root, path, text, mode=0o644):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


@contextlib.contextmanager
def running(root):
    """While a RUN runs: /proc, and the proxies that this machine uses, which an engine hands on too."""
    mount("-t", "proc", "proc", os.path.join(root, "proc"))
    try:
        names = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"]
        names += [name.upper() for name in names]
        yield {"DEBIAN_FRONTEND": "noninteractive", **{name: os.environ[name] for name in names if name in os.environ}}
    finally:
        subprocess.run(["umount", os.path.join(root, "proc")], check=True)


def install(root, packages):
    with running(root) as environment:
        line = (
            "apt-get update -qq && apt-get install -y -qq --no-install-recommends " + " ".join(packages) + " >/dev/null"
        )
        line += " && rm -rf /var/lib/apt/lists/*"
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        line = ["chroot", root, "/bin/sh", "-c", line]
        # What it printed is shown if it fails.
        subprocess.run(line, check=True, capture_output=True, text=True, env={"PATH": path, **environment})


def toolchain():
    """The folder with the toolchain's bin, lib and so on."""
    information = json.loads(ask("swift", "-print-target-info"))
    prefix = os.path.dirname(os.path.dirname(information["paths"]["runtimeResourcePath"]))
    if not os.path.exists(os.path.join(prefix, "bin/swift")):
        raise MachineError(f"no bin/swift in {prefix}")
    if prefix in ("/usr", "/usr/local"):
        raise MachineError(
            f"the Swift toolchain is in {prefix}; it has to have a folder of its own to be lent to a root"
        )
    return prefix


def lend_toolchain(root):
    """Mounts the toolchain in a root directory, configures the sources of Swift packages, returns the bin folder."""
    prefix = toolchain()
    lend_folder(root, prefix)
    # Where this machine fetches repositories from elsewhere, the root does too, be it another host or a folder.
    folders = []
    for scope in ["--system", "--global"]:
        listed = subprocess.run(["git", "config", scope, "--null", "--list"], capture_output=True, text=True)
        for entry in listed.stdout.split("\0"):
            key, _, value = entry.partition("\n")
            match = re.fullmatch(r"url\.(.*)\.insteadof", key, re.IGNORECASE)
            if match or re.match(r"http\.(.*\.)?(proxy|sslcainfo)$", key):
                subprocess.run(
                    ["git", "config", "--file", os.path.join(root, "etc/gitconfig"), "--add", key, value], check=True
                )
            if match:
                folders.append(match[1])
    configuration = os.path.expanduser("~/.swiftpm/configuration")
    if os.path.isdir(configuration):
        shutil.copytree(configuration, os.path.join(root, "root/.swiftpm/configuration"), dirs_exist_ok=True)
        mirrors = os.path.join(configuration, "mirrors.json")
        if os.path.exists(mirrors):
            folders += [entry.get("mirror", "") for entry in json.load(open(mirrors)).get("object", [])]
    for folder in folders:
        if folder.startswith("file://"):
            folder = urllib.parse.unquote(urllib.parse.urlparse(folder).path)
        if folder.startswith("/") and os.path.isdir(folder):
            lend_folder(root, folder)
            # git trusts a repository of another user only where it is told to.
            subprocess.run(
                ["git", "config", "--file", os.path.join(root, "etc/gitconfig"), "safe.directory", "*"], check=True
            )
    return os.path.join(prefix, "bin")


def lend_folder(root, folder):
    """The same folder at the same place, not to be written to."""
    target = os.path.join(root, folder.strip("/"))
    os.makedirs(target, exist_ok=True)
    mount("--bind", folder, target)
    mount("-o", "remount,ro,bind", target)
