"""Prints a Delta table as a reader outside this project sees it.

    read_delta.py TABLE [--at VERSION]

The first line is an object about the table: version, id, schema, files, rows, and txn, the latest transaction version
of each application id. Then one JSON object a row, sorted by their text. Timestamps are RFC 3339 in UTC with
microseconds, decimals are texts, bytes are hexadecimal.
"""

import argparse
import datetime
import decimal
import json
import os
import pathlib
import sys

import pyarrow.parquet
from deltalake import DeltaTable


def plain(value):
    """A cell as JSON can hold it, without loss."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value.isoformat(timespec="microseconds") + "Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def applications(path):
    """Application ids that the log names, in commits and checkpoints. The library answers only for ids it is asked for."""
    log = pathlib.Path(path) / "_delta_log"
    found = set()
    for commit in log.glob("*.json"):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "txn" in action:
                found.add(action["txn"]["appId"])
    for checkpoint in log.glob("*.checkpoint*.parquet"):
        columns = pyarrow.parquet.read_schema(checkpoint).names
        if "txn" in columns:
            rows = pyarrow.parquet.read_table(checkpoint, columns=["txn"]).column("txn").to_pylist()
            found.update(row["appId"] for row in rows if row is not None)
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--at", type=int, help="a version; the latest without")
    options = parser.parse_args()

    table = DeltaTable(options.table, version=options.at)
    rows = table.to_pyarrow_table().to_pylist()
    about = {
        "version": table.version(),
        "id": table.metadata().id,
        "schema": {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]},
        "files": len(table.file_uris()),
        "rows": len(rows),
        "txn": {name: table.transaction_version(name) for name in applications(options.table)},
    }
    print(json.dumps(about))
    for line in sorted(json.dumps(plain(row), sort_keys=True) for row in rows):
        print(line)


if __name__ == "__main__":
    main()
    # All is written. On a busy machine a thread of one of the libraries can abort an orderly end of the interpreter.
    sys.stdout.flush()
    os._exit(0)
