"""Writes rows into a Delta table as a system outside this project does.

    write_delta.py TABLE [--overwrite] < ROWS

ROWS is a JSON array of objects whose values are texts; a null stays one. Prints the table's version.
"""

import argparse
import json
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args()
    rows = json.load(sys.stdin)
    names = sorted({name for row in rows for name in row})
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}
    write_deltalake(options.table, pa.table(columns), mode="overwrite" if options.overwrite else "append")
    print(DeltaTable(options.table).version())


if __name__ == "__main__":
    main()
    # All is written. On a busy machine a thread of one of the libraries can abort an orderly end of the interpreter.
    sys.stdout.flush()
    os._exit(0)
