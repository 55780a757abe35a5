"""Appends to a new Delta table with the Python library and prints how long an append takes: what the benchmarks compare
the host's own writer with.

    append_bench.py TABLE [--appends N] [--rows N]

Prints one JSON object: appends, rows, and milliseconds p50, p90, p99, max, and mean of the first and the last tenth (an
append that slows down with history shows there).
"""

import argparse
import datetime
import json
import time

import pyarrow as pa
from deltalake import write_deltalake

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def batch(number, rows):
    """Rows like those of s1_results."""
    at = EPOCH + datetime.timedelta(minutes=number)
    stamps = pa.array([at] * rows, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "alarm_time": stamps,
            "router_name": [f"Edge-RouterA-{i:03}" for i in range(rows)],
            "router_ip": [f"203.0.113.{i % 256}" for i in range(rows)],
            "error_count": pa.array(range(rows), pa.int64()),
            "severity": ["Critical"] * rows,
            "alarm_reason": ["Threshold >= 50"] * rows,
            "processing_time": stamps,
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--appends", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100)
    options = parser.parse_args()
    if options.appends < 1:
        parser.error("--appends must be at least 1")

    taken = []
    for number in range(options.appends):
        rows = batch(number, options.rows)
        start = time.perf_counter()
        write_deltalake(options.table, rows, mode="append")
        taken.append((time.perf_counter() - start) * 1000)

    ordered = sorted(taken)
    tenth = max(1, len(taken) // 10)

    def at(share):
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    print(
        json.dumps(
            {
                "appends": options.appends,
                "rows": options.rows,
                "p50": at(0.50),
                "p90": at(0.90),
                "p99": at(0.99),
                "max": at(1),
                "first_tenth": round(sum(taken[:tenth]) / tenth, 3),
                "last_tenth": round(sum(taken[-tenth:]) / tenth, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
