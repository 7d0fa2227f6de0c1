"""One row of outgrow.sh: a run beside the bare one, and beside the one with moves off.

    outgrow_row.py FOLDER KIND WAY [SHARE]      prints the row of FOLDER/WAY.txt; with OUT, adds it to $OUT/outgrow.jsonl. Fails without figures
    outgrow_row.py FOLDER KIND --limit SHARE    the device's limit in MiB

`of link`: the extra time of a step over the time that the excess (the peak of the bare run less the limit) takes over the link once at
50 GB/s. Values are compared over the steps that both runs made: numbers of a loss within a thousandth, tokens exactly.
"""
import json
import os
import pathlib
import sys

LINK, MIB, GIB = 50e9, 1 << 20, 1 << 30
# Steps of which values are compared, where two bare runs differ in others.
COMPARED = {"server": slice(4, 5)}


def result(folder, way):
    """The figures of a run, or None."""
    path = folder / f"{way}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((json.loads(line[7:]) for line in reversed(lines) if line.startswith("RESULT ")), None)


def limit(bare, share):
    """Bytes of the device: a share of what was live, or room for all that the framework holds."""
    return bare["peak_bytes"] * share // 100 if share < 100 else bare["held_bytes"] + 3 * GIB


def common(kind, ours, bare):
    """The values of the steps that both runs made, and that two bare runs have in common."""
    return list(zip(ours["values"], bare["values"]))[COMPARED.get(kind, slice(None))]


def difference(kind, ours, bare):
    """The largest relative difference of such steps; tokens, which are integers, differ by 1 or not at all."""
    pairs = common(kind, ours, bare)
    if isinstance(bare["value"], int):
        return float(any(a != b for a, b in pairs))
    # Written so that a value that is no number differs.
    return max(0.0 if a == b else abs(a - b) / abs(b) if abs(a - b) <= abs(b) else 1.0 for a, b in pairs)


def statistics(folder, ours):
    """What the library says at the end of the process, summed over devices; empty if it says nothing."""
    path = folder / f"{ours['pid']}.json"
    if not path.exists():
        return {}
    devices = json.loads(path.read_text()).get("devices", [])
    host = [((device.get("memory") or device["tiers"])["host"]) for device in devices]
    moves = {name: sum(device["moves"][name] for device in devices) for name in ("in_bytes", "out_bytes", "clean_bytes", "unprinted_bytes")}
    refused = [reason for device in devices for reason in device["moves"].get("refused", [])]
    return {"host_peak_bytes": sum(tier["peak_reserved_bytes"] for tier in host), **moves, "refused": refused}


def compared(folder, kind, ours, way, share):
    bare, off = result(folder, "bare"), result(folder, "off")
    cap = limit(bare, share)
    extra, link = ours["late_s"] - bare["late_s"], max(0, bare["peak_bytes"] - cap) / LINK
    apart = difference(kind, ours, bare)
    return {
        "share": share, "limit_bytes": cap, "of_bare": ours["late_s"] / bare["late_s"],
        "of_off": ours["late_s"] / off["late_s"] if off else None,
        "extra_s": extra, "link_s": link, "of_link": extra / link if link else None,
        "difference": apart, "common_steps": len(common(kind, ours, bare)),
        "same": "exactly" if apart == 0 else "nearly" if apart < 1e-3 else "NO", **statistics(folder, ours),
    }


def text(kind, way, ours, row):
    line = f"{kind} {way}: {ours['late_s']:.4f} s a step ({len(ours['steps_s'])}), peak {ours['peak_bytes'] / GIB:.2f} GiB, held {ours['held_bytes'] / GIB:.2f}"
    if "share" not in row:
        return line
    ratio = lambda number: "-" if number is None else f"{number:.3f}"
    line += f"; {ratio(row['of_bare'])} of bare, {ratio(row['of_off'])} of moves off; extra {row['extra_s']:.3f} s, link {row['link_s']:.3f} s, "
    line += f"{ratio(row['of_link'])} of link; same {row['same']} ({row['difference']:.1e}, {row['common_steps']} steps)"
    if "in_bytes" in row:
        figures = ("host_peak_bytes", "in_bytes", "out_bytes", "clean_bytes", "unprinted_bytes")
        line += "; host {:.2f} GiB, in {:.1f}, out {:.1f}, clean {:.1f}".format(*(row[name] / GIB for name in figures))
    return line


def main():
    folder, kind, way, share = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int((sys.argv[4:] or ["0"])[0])
    if way == "--limit":
        return print(limit(result(folder, "bare"), share) // MIB)
    ours = result(folder, way)
    row = {"kind": kind, "way": way, "scale": os.environ.get("SCALE", "1")}
    row |= {"failed": True, "share": share} if ours is None else ours
    if ours and way != "bare":
        row |= compared(folder, kind, ours, way, share)
    print(text(kind, way, ours, row) if ours else f"{kind} {way}: failed", flush=True)
    if os.environ.get("OUT"):
        # One write, for two GPUs may be measured at once.
        with open(pathlib.Path(os.environ["OUT"], "outgrow.jsonl"), "ab", buffering=0) as file:
            file.write((json.dumps(row) + "\n").encode())
    return ours is None


if __name__ == "__main__":
    sys.exit(main())
