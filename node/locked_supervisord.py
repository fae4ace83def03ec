"""supervisord, with locks on folders that last for as long as it does.

    python -P locked_supervisord.py supervisord.conf FOLDER ...

A lock tells systemd-tmpfiles, which cleans /tmp and /var/tmp by age, to leave a folder alone, and
another supervisord that this one still works on it. The kernel drops it with the process, however
that ends. A separate program, because supervisord closes all inherited files but the lowest.
"""

import fcntl
import os
import sys

from supervisor import supervisord

FIRST = 3  # supervisord keeps the files below 5, and closes those from 3 on in its programs


def hold(folder: str, number: int) -> None:
    """Lock a folder by an open file of that number."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{folder} is in use by another supervisord, which holds a lock on it")
    except OSError as error:
        # NFS locks no folder; cleaners do not come there either, and the mark remains.
        sys.stderr.write(f"no lock on {folder}: {error}\n")
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    _, config, *folders = sys.argv
    for number, folder in enumerate(folders, FIRST):
        hold(folder, number)
    supervisord.main(["-c", config])
