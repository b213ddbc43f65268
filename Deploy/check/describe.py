"""Prints, as JSON, what the deployment files would have run, for tests that compare it with the programs.

  describe.py                  the package's container file and compose file (the latter read from standard input, as
                               `docker-compose config` prints it): a list of {where, program, words, secrets, variables}
  describe.py CONTAINERFILE    only reads that file, and says in one line what is wrong with it
"""

import json
import os
import sys

import containerfile

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def lines(stages, compose):
    for name, stage in stages.items():
        if stage["entrypoint"]:
            yield {
                "where": f"stage {name}",
                "program": stage["entrypoint"][0],
                "words": stage["entrypoint"][1:] + stage["command"],
            }
        if stage["health_check"]:
            yield {"where": f"stage {name}", "program": stage["health_check"][0], "words": stage["health_check"][1:]}
    for name, service in compose["services"].items():
        stage = stages.get(service.get("build", {}).get("target"), {})
        secrets = [entry["source"] for entry in service.get("secrets", [])]
        program = (stage.get("entrypoint") or [service["image"].partition(":")[0]])[0]
        variables = sorted(service.get("environment") or {})
        yield {
            "where": f"service {name}", "program": program, "words": service.get("command", []), "secrets": secrets,
            "variables": variables,
        }
        test = service.get("healthcheck", {}).get("test")
        if test:
            yield {"where": f"service {name}", "program": test[1], "words": test[2:]}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(PACKAGE, "Deploy/Dockerfile")
    try:
        stages = containerfile.describe(containerfile.parse(open(path).read()))
    except containerfile.ContainerFileError as error:
        sys.exit(str(error))
    if len(sys.argv) == 1:
        import yaml

        print(json.dumps(list(lines(stages, yaml.safe_load(sys.stdin)))))


main()
