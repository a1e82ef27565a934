"""Writes polyplane/_types.py: the API's JSON objects as typed dictionaries, from its OpenAPI document.

    go run ./scripts/openapi | python3 python/tools/generate.py python/polyplane/_types.py

Without a file it prints them. Only what users can be answered or can ask is written; what the agents of nodes speak is
left out.
"""

from __future__ import annotations

import json
import keyword
import sys
from pathlib import Path
from typing import Any

HEAD = '''"""The objects of polyplane's API.

Generated from its OpenAPI document by tools/generate.py; `make generate` does it.
"""

from typing import Any, Required, TypedDict
'''

PREFIX = "#/components/schemas/"


def main() -> None:
    document = json.load(sys.stdin)
    schemas: dict[str, Any] = document["components"]["schemas"]
    names = reached(document["paths"], schemas)
    parts = [HEAD]
    parts += [definition(name, schemas[name]) for name in sorted(names)]
    text = "\n\n".join(parts)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        sys.stdout.write(text)


def reached(paths: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    """The names of all schemas that the operations for users mention, and of those that these mention."""
    found: set[str] = set()
    for operations in paths.values():
        for operation in operations.values():
            if "agents" not in operation.get("tags", []):
                follow(operation, schemas, found)
    return found


def follow(part: Any, schemas: dict[str, Any], found: set[str]) -> None:
    if isinstance(part, list):
        for item in part:
            follow(item, schemas, found)
    elif isinstance(part, dict):
        name = part.get("$ref", "").removeprefix(PREFIX) if isinstance(part.get("$ref", ""), str) else ""
        if name and name not in found:
            found.add(name)
            follow(schemas[name], schemas, found)
        for value in part.values():
            follow(value, schemas, found)


def definition(name: str, schema: dict[str, Any]) -> str:
    fields = schema.get("properties", {})
    required = schema.get("required", [])
    typed = {field: field_type(what, field in required) for field, what in sorted(fields.items())}
    if any(keyword.iskeyword(field) or not field.isidentifier() for field in typed):
        lines = [f'    "{field}": {kind},' for field, kind in typed.items()]
        return f'{name} = TypedDict(\n    "{name}",\n    {{\n' + "\n".join("    " + line for line in lines) + \
            "\n    },\n    total=False,\n)\n"
    lines = [f"    {field}: {kind}" for field, kind in typed.items()] or ["    pass"]
    return f"class {name}(TypedDict, total=False):\n" + "\n".join(lines) + "\n"


def field_type(schema: dict[str, Any], required: bool) -> str:
    kind = value_type(schema)
    if not required:
        return kind
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        # What is left out when it is empty is never null; what is always there is null when it is empty.
        kind += " | None"
    return f"Required[{kind}]"


def value_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f'"{schema["$ref"].removeprefix(PREFIX)}"'
    kinds = schema.get("type")
    kind = next((k for k in kinds if k != "null"), None) if isinstance(kinds, list) else kinds
    match kind:
        case "string":
            return "str"
        case "integer":
            return "int"
        case "number":
            return "float"
        case "boolean":
            return "bool"
        case "array":
            return f"list[{value_type(schema['items'])}]"
        case "object":
            more = schema.get("additionalProperties")
            return f"dict[str, {value_type(more) if isinstance(more, dict) else 'Any'}]"
    return "Any"


if __name__ == "__main__":
    main()
