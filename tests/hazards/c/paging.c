/* Takes four pages here and four there in turn, of a device that has room for fewer than eight, through a library that keeps what is
 * given back until memory is short; then both at once. Says how often the library gave up what lay unused, and the statistics, after
 * the turns and at the end. Argument: turns. */

#include "driver.h"

int pages_take(int first, int count);
void pages_give(int first, int count);
int pages_emptied(void);
char *wmshim_stats_json(void);

enum { PAGES = 4 };

static void report(void)
{
    char *stats = wmshim_stats_json();
    printf("%d %s\n", pages_emptied(), stats ? stats : "");
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
    report();
    MUST(pages_take(0, PAGES));
    MUST(pages_take(PAGES, PAGES));
    report();
    return 0;
}
