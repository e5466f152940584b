"""A process of its own that opens a log and writes to it: `build_child.py URI NAME COUNT`.

Prints each index as it is acknowledged, one a line, so that the parent knows what must be there whatever happens.
"""

from __future__ import annotations

import sys

from crannog.builds import BuildEvent, PartitionEvent, PartitionStatus, open_log


def main(uri: str, name: str, count: int) -> None:
    log = open_log(uri)
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(count):
        event = BuildEvent(
            f"{name}-{number}", number, name, PartitionEvent(f"p/{number % 5}", PartitionStatus.BUILDING)
        )
        print(log.append_event(event), event.event_id, flush=True)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
