"""Checks a Kubernetes file against the programs and the secrets, without a cluster.

  kubernetes.py FILE SECRETS PROGRAMS

FILE has the objects, SECRETS is the directory of Deploy/service-secrets.sh and Deploy/cluster/cluster-secrets.sh,
PROGRAMS that of tidemark-store, tidemark-gateway and, for etcd, /usr/bin/etcd. Prints "ok: N flags", or what is wrong.
"""

import os
import re
import subprocess
import sys

import yaml

FILE, SECRETS, PROGRAMS = sys.argv[1:4]
# As the comment of the file makes them; the last one is a certificate of the operator's.
SECRET_FILES = {
    "tidemark": set(os.listdir(SECRETS)),
    "tidemark-etcd": set(os.listdir(SECRETS + "/etcd")),
    "tidemark-public": {"tls.crt", "tls.key"},
}
problems = []
flags = 0


def check(is_right, what):
    if not is_right:
        problems.append(what)


def help_of(program):
    path = "/usr/bin/etcd" if program == "etcd" else f"{PROGRAMS}/{program}"
    shown = subprocess.run([path, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z0-9-]+", shown.stdout + shown.stderr))


def names(certificate):
    """The names of a certificate."""
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"],
        check=True, capture_output=True, text=True,
    )
    return set(re.findall(r"DNS:([^,\s]+)", shown.stdout))


def mounted(pod, container):
    """The files that a container sees."""
    volumes = {volume["name"]: volume["secret"] for volume in pod["volumes"]}
    files = set()
    for mount in container["volumeMounts"]:
        secret = volumes.get(mount["name"])
        if not secret:
            continue
        known = SECRET_FILES[secret["secretName"]]
        keys = {item["key"]: item["path"] for item in secret.get("items", [])} or {name: name for name in known}
        for key, path in keys.items():
            check(key in known, f"the secret {secret['secretName']} has no {key}")
            files.add(f"{mount['mountPath']}/{path}")
    return files


def check_workload(document, services):
    global flags
    spec = document["spec"]
    name = document["metadata"]["name"]
    labels = spec["template"]["metadata"]["labels"]
    check(spec["selector"]["matchLabels"] == labels, f"{name}: the selector is not the label")
    pod = spec["template"]["spec"]
    for container in pod["containers"]:
        program = container.get("command", [container["image"]])[0]
        known = help_of(program)
        files = mounted(pod, container)
        values = {}
        for word in container["args"]:
            flag, _, value = word.partition("=")
            values[flag] = value
            check(flag in known, f"{name}: {program} has no {flag}")
            flags += 1
            if value.startswith("/run/secrets/"):
                check(value in files, f"{name}: {value} is not mounted")
            for variable in re.findall(r"\$\((\w+)\)", value):
                check(any(entry["name"] == variable for entry in container["env"]), f"{name}: no variable {variable}")
        ports = set(re.findall(r":(\d+)", " ".join(values.values())))
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                check(str(container[probe]["httpGet"]["port"]) in ports, f"{name}: {probe} asks another port")
        for port in services[name]["ports"]:
            check(str(port.get("targetPort", port["port"])) in ports, f"{name}: no program listens on {port}")
    check(services[name]["selector"] == labels, f"{name}: the Service selects other pods")
    if document["kind"] == "StatefulSet":
        pods = [f"{name}-{number}.{name}" for number in range(1, spec["replicas"] + 1)]
        check(spec["ordinals"]["start"] == 1, f"{name}: pods are not numbered from 1")
        folder = SECRETS + ("/etcd" if name == "etcd" else "")
        check(set(pods) <= names(f"{folder}/{name}-cert.pem"), f"{name}: the certificate does not name {pods}")
        return pods
    return []


with open(FILE) as file:
    text = file.read()
documents = list(yaml.safe_load_all(text))
services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
workloads = [each for each in documents if each["kind"] in ("StatefulSet", "Deployment")]
check(len(workloads) == 3, "etcd, nodes and gateways are three workloads")
known = [pod for each in workloads for pod in check_workload(each, services)]
for used in re.findall(r"\b(?:node|etcd)-\d+\.\w+", text):
    check(used in known, f"there is no pod {used}")
budgets = {each["metadata"]["name"] for each in documents if each["kind"] == "PodDisruptionBudget"}
check(budgets == {each["metadata"]["name"] for each in workloads}, "a workload has no PodDisruptionBudget")
if problems:
    sys.exit("\n".join(problems))
print(f"ok: {flags} flags")
