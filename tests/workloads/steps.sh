# For scripts that run one measurement after another, sourced from the repository root: where things are, and `step NAME SECONDS
# COMMAND...`, which runs a command, prints its table when it is there, also that of a command which was ended for its time, and keeps
# both streams in $out, the script's first argument. SKIP="NAME ..." leaves steps out.

out=${1:-$(mktemp -d)}
library=$PWD/dist/lib/libwmshim.so
latency=${LATENCY:-target/release/latency}
mkdir -p "$out" || exit 2

step() {
    name=$1 limit=$2
    shift 2
    case " ${SKIP:-} " in *" $name "*) return ;; esac
    echo "$name, at most $limit s ..." >&2
    printf '\n== %s\n' "$name"
    # Told to end first, so that it prints its figures.
    timeout -k 5 "$limit" "$@" 2>"$out/$name.err" >"$out/$name.txt"
    code=$?
    cat "$out/$name.txt"
    if [ $code -ne 0 ]; then echo "$name: exit $code (124: no end in time)" && tail -n 60 "$out/$name.err"; fi
}
