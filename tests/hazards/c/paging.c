/* Takes four pages here and four there in turn, of a device that has room for fewer than eight,
 * through a library that keeps freed pages until memory is short; then `both` at once, or the
 * library releases the unused ones (`empty`), or nothing until standard input ends (`idle`). Prints
 * how often the library did that, the code of the last step, and the statistics, after the turns
 * and at the end. Arguments: turns, and the step after them. */

#include <string.h>
#include <unistd.h>

#include "driver.h"

int pages_take(int first, int count);
void pages_give(int first, int count);
int pages_emptied(void);
void pages_empty(void);
char *wmshim_stats_json(void);

enum { PAGES = 4 };

static void report(int code)
{
    char *stats = wmshim_stats_json();
    printf("%d %d %s\n", pages_emptied(), code, stats ? stats : "");
    free(stats);
}

int main(int arguments, char **argument)
{
    int turns = arguments > 1 ? atoi(argument[1]) : 2;
    begin();
    for (int turn = 0; turn < turns; turn++) {
        int first = turn % 2 * PAGES;
        MUST(pages_take(first, PAGES));
        pages_give(first, PAGES);
    }
    report(0);
    int code = 0;
    if (arguments > 2 && !strcmp(argument[2], "empty"))
        pages_empty();
    else if (arguments > 2 && !strcmp(argument[2], "idle")) {
        char byte;
        fflush(stdout);
        while (read(0, &byte, 1) > 0)
            ;
        return 0;
    } else {
        MUST(pages_take(0, PAGES));
        code = pages_take(PAGES, PAGES);
    }
    report(code);
    return 0;
}
