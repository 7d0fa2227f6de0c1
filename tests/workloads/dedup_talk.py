"""How the processes of `dedup.py` speak with it: they obey lines on standard input, and say one JSON object a line."""
import json
import os
import select
import sys

# Without a buffer, so that unread input can be seen from outside.
COMMANDS = open(0, "rb", buffering=0, closefd=False)


def say(event, **more):
    # One write, so that lines of forked processes do not mix.
    os.write(1, (json.dumps(dict(event=event, pid=os.getpid(), **more)) + "\n").encode())


def asked(wait=True):
    """The next line of standard input; without waiting, whether there is one. At its end the process ends."""
    if not wait:
        return bool(select.select([COMMANDS], [], [], 0)[0])
    line = COMMANDS.readline()
    if not line:
        sys.exit()
    return line.decode().split()
