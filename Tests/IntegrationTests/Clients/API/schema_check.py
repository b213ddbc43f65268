#!/usr/bin/env python3
"""Checks that an OpenAPI file is valid and that its examples match their schemas.

    schema_check.py Proto/openapi.yaml

Prints a line for each fault, then the number of examples checked."""

import sys

import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

with open(sys.argv[1]) as file:
    document = yaml.safe_load(file)
faults = [f"{list(error.absolute_path)}: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
count = 0


def resolve(node):
    while "$ref" in node:
        found = document
        for part in node["$ref"].split("/")[1:]:
            found = found[part]
        node = found
    return node


def examine(where, holder):
    """An object with a schema and examples: a media type, a parameter, a header or a stream's event."""
    global count
    holder = resolve(holder)
    examples = [resolve(example)["value"] for example in holder.get("examples", {}).values()]
    if "example" in holder:
        examples.append(holder["example"])
    # References point into the whole document.
    schema = {**holder.get("schema", {}), "components": document["components"]}
    for example in examples:
        count += 1
        for error in Draft202012Validator(schema).iter_errors(example):
            faults.append(f"{where}: {example}: {error.message}")
    return len(examples)


for path, item in document["paths"].items():
    for method, operation in item.items():
        if method == "parameters":
            continue
        where = f"{method} {path}"
        for parameter in item.get("parameters", []) + operation.get("parameters", []):
            examine(where, parameter)
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if not examine(f"{where} body", content) and content["schema"]:
                faults.append(f"{where}: no example of a {kind} body")
        for status, answer in operation["responses"].items():
            answer = resolve(answer)
            for header in answer.get("headers", {}).values():
                examine(f"{where} {status}", header)
            for kind, content in answer.get("content", {}).items():
                if not examine(f"{where} {status}", content) and kind == "application/json":
                    faults.append(f"{where}: no example of its {status}")
                # Of a stream: the schema of each event.
                if "x-event" in content:
                    examine(f"{where} {status} event", content["x-event"])

for fault in faults:
    print("FAULT", fault)
print(count, "examples")
sys.exit(1 if faults else 0)
