#!/bin/sh
# Installs wmshim below a folder of your choice, and takes it away again:
#
#     ./install.sh PREFIX                such as /usr/local, or $HOME/.local
#     ./install.sh --uninstall PREFIX    also PREFIX/lib/wmshim/install.sh --uninstall PREFIX
#
# All files go to PREFIX/lib/wmshim, which no `ldconfig` looks into: the library answers for the driver's name. Beside them
# there are links to programs, header, man pages and completions in PREFIX/bin, include and share. PREFIX/lib/wmshim/manifest
# lists each file with its hash. Nothing that is not in such a list is overwritten or removed, and a file that was changed
# since stays. All links are relative, so a package can be made of a PREFIX in another place.
set -eu
umask 022
own=lib/wmshim

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# What a file is, in one word: its hash, or the target of a link.
mark() {
    if [ -L "$1" ]; then
        printf 'link:%s\n' "$(readlink "$1")"
    else
        sha256sum <"$1" | cut -d' ' -f1
    fi
}

exists() {
    [ -e "$1" ] || [ -L "$1" ]
}

# Files of the archive, without the programs that only a clone needs.
contents() {
    (cd "$1" && find . \( -type f -o -type l \) | sed 's|^\./||' | LC_ALL=C sort)
}

# Link in PREFIX, and the file in PREFIX/lib/wmshim that it leads to.
links() {
    echo "bin/wmctl bin/wmctl"
    echo "bin/wmshim-run bin/wmctl"
    echo "include/wmshim.h include/wmshim.h"
    (cd "$1" && find share -type f 2>/dev/null | LC_ALL=C sort | sed 's|.*|& &|')
}

# `../../` for a link that is two folders deep.
upwards() {
    dirname "$1" | sed 's|[^/][^/]*|..|g'
}

# The folders of a path, the outermost first.
folders() {
    echo "$1" | awk -F/ '{ for (i = 1; i < NF; i++) { path = path (i > 1 ? "/" : "") $i; print path } }'
}

# The word that the list has for a path; nothing if it has none.
listed() {
    [ -f "$manifest" ] || return 0
    awk -v path="$1" '{ word = $1; sub(/^[^ ]+ /, ""); if ($0 == path) { print word; exit } }' "$manifest"
}

# Is there a file that is not ours, or that was changed?
foreign() {
    exists "$prefix/$1" && [ "$(listed "$1")" != "$(mark "$prefix/$1")" ]
}

# A folder that is made here is noted, to be removed with the last file.
make_folders() {
    folders "$1" | while read -r folder; do
        [ -d "$prefix/$folder" ] && [ "$(listed "$folder/")" != folder ] && continue
        mkdir -p "$prefix/$folder"
        echo "folder $folder/" >>"$new"
    done
}

# The file appears whole: a program that starts meanwhile gets the old one or the new one.
put() {
    make_folders "$2"
    rm -f "$prefix/$2.new"
    cp -P "$1" "$prefix/$2.new"
    mv -f "$prefix/$2.new" "$prefix/$2"
    echo "$(mark "$prefix/$2") $2" >>"$new"
}

put_all() {
    source=$(cd "$(dirname "$0")" && pwd)
    [ -f "$source/lib/libwmshim.so" ] || fail "$source has no lib/libwmshim.so: start the install.sh of an unpacked archive"
    mkdir -p "$1"
    prefix=$(cd "$1" && pwd)
    manifest=$prefix/$own/manifest
    case "$source/" in "$prefix/$own/"*) fail "$source is the installation itself" ;; esac
    { contents "$source" | sed "s|^|$own/|"; links "$source" | cut -d' ' -f1; echo "$own/manifest"; } | while read -r path; do
        [ "$path" = "$own/manifest" ] && [ -f "$manifest" ] && continue
        foreign "$path" && fail "$prefix/$path is not wmshim's, or was changed since: nothing was installed"
        true
    done
    new=$(mktemp)
    # Ended too early, the list has what was put so far, and the next start goes on.
    trap 'write_list "$new" "$manifest"; rm -f "$new" "$new.link"' EXIT
    trap 'exit 1' HUP INT TERM
    contents "$source" | while read -r path; do
        put "$source/$path" "$own/$path"
    done
    links "$source" | while read -r link file; do
        ln -sf "$(upwards "$link")/$own/$file" "$new.link"
        put "$new.link" "$link"
    done
    # Files of an earlier version that this one does not have.
    if [ -f "$manifest" ]; then
        remove_listed "$manifest" "$new"
    fi
    write_list "$new"
    echo "installed in $prefix/$own; programs: $prefix/bin/wmctl, $prefix/bin/wmshim-run"
    echo "look at the machine: $prefix/bin/wmctl doctor"
    echo "undo: '$prefix/$own/install.sh' --uninstall '$prefix'"
}

# The list of these lists' paths, of which the first one that has a path says its word.
write_list() {
    [ -d "$prefix/$own" ] || return 0
    cat "$@" 2>/dev/null | awk '{ path = $0; sub(/^[^ ]+ /, "", path) } !seen[path]++' >"$manifest.new"
    mv -f "$manifest.new" "$manifest"
}

# Removes what the first list has and the second has not.
remove_listed() {
    while read -r word path; do
        [ "$word" = folder ] && continue
        exists "$prefix/$path" || continue
        grep -qxFe "$path" <<NAMES && continue
$(cut -d' ' -f2- "$2")
NAMES
        if [ "$(mark "$prefix/$path")" = "$word" ]; then
            rm -f "$prefix/$path"
        else
            echo "install.sh: $prefix/$path was changed since, and stays" >&2
        fi
    done <"$1"
}

remove_all() {
    [ -d "$1" ] || fail "there is no folder $1"
    prefix=$(cd "$1" && pwd)
    manifest=$prefix/$own/manifest
    [ -f "$manifest" ] || fail "$manifest is not there: wmshim is not installed in $prefix by this script"
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    cp "$manifest" "$list"
    remove_listed "$list" /dev/null
    rm -f "$manifest"
    # The innermost first; one that has another file stays.
    grep '^folder ' "$list" | cut -d' ' -f2- | LC_ALL=C sort -r | while read -r folder; do
        rmdir "$prefix/$folder" 2>/dev/null || true
    done
    echo "removed from $prefix"
}

main() {
    case "${1:-}" in
        --uninstall) [ $# = 2 ] || fail "usage: install.sh --uninstall PREFIX"; remove_all "$2" ;;
        "" | -*) fail "usage: install.sh PREFIX, or install.sh --uninstall PREFIX" ;;
        *) [ $# = 1 ] || fail "usage: install.sh PREFIX"; put_all "$1" ;;
    esac
}

# The last line: the shell has read all of it before the file may be removed.
main "$@"; exit
