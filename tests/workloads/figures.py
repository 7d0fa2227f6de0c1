"""The last line of every workload: the word RESULT and JSON that `matrix.py` reads. It needs no framework.

Keys: `name`; `steps_s`, seconds of each step, and their `median_s` and `sum_s`; `value`, the loss or checksum by which runs are
compared; `laps_s`, seconds of each part of each step, if it has parts; and what else a workload has to say.
"""
import json
import statistics


def emit(name, seconds, value, **more):
    figures = {"name": name, "median_s": statistics.median(seconds), "sum_s": sum(seconds), "steps_s": seconds, "value": value}
    print("RESULT " + json.dumps(figures | more), flush=True)
