"""Makes the test stricter than the file: an answer with an undescribed field fails.

The file itself allows new fields in answers, so that they do not break clients."""

import schemathesis


@schemathesis.hook
def before_load_schema(context, raw_schema):
    seen = set()

    def resolve(node):
        while "$ref" in node:
            name = node["$ref"]
            node = {**find(name), **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def find(reference):
        node = raw_schema
        for part in reference.split("/")[1:]:
            node = node[part]
        return node

    def close(schema):
        if isinstance(schema, list):
            for item in schema:
                close(item)
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        seen.add(id(schema))
        if "$ref" in schema:
            close(find(schema["$ref"]))
        # A schema with a type describes a whole object. `if` and its like, and schemas beside a reference,
        # describe a part.
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for key in ("items", "oneOf"):
            close(schema.get(key))
        for value in schema.get("properties", {}).values():
            close(value)

    for item in raw_schema["paths"].values():
        for operation in item.values():
            for answer in operation.get("responses", {}).values() if isinstance(operation, dict) else ():
                for content in resolve(answer).get("content", {}).values():
                    if content.get("schema", {}).get("type") != "object" or "properties" in content["schema"]:
                        close(content["schema"])


@schemathesis.serializer("application/x-ndjson", "application/vnd.tidemark.frames")
def as_bytes(context, value):
    return value if isinstance(value, bytes) else str(value).encode(errors="backslashreplace")
