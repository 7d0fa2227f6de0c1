/* Prints the statistics of this process, as the library writes them. */

#include "pieces.h"

static void report(const char *when)
{
    char *stats = wmshim_stats_json();
    printf("%s %s\n", when, stats ? stats : "");
    fflush(stdout);
    free(stats);
}
